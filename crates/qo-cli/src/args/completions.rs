//! `qo completions`.

use clap::Args;
use clap_complete::Shell;

/// What `qo completions` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  source <(qo completions bash)
  qo completions zsh > \"${fpath[1]}/_qo\"
  qo completions fish > ~/.config/fish/completions/qo.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}
