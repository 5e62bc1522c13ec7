//! `qo completions`.

use clap::Args;
use clap_complete::Shell;

/// Arguments of `qo completions`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  source <(qo completions bash)
  qo completions zsh > \"${fpath[1]}/_qo\"
  qo completions fish > ~/.config/fish/completions/qo.fish")]
pub struct CompletionsArgs {
    /// Shell to generate completions for
    #[arg(value_enum)]
    pub shell: Shell,
}
