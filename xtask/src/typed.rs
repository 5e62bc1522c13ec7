//! Formats commands for display.

use std::path::Path;
use std::process::Command;

/// The command as a user would type it into a shell.
pub(crate) fn typed(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let mut text = name.to_string_lossy().into_owned();
    for argument in command.get_args() {
        let argument = argument.to_string_lossy();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=./,:".contains(&byte);
        let quote = if argument.bytes().all(plain) { "" } else { "'" };
        text.extend([" ", quote, &argument, quote]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_has_no_path_and_special_characters_are_quoted() {
        let mut command = Command::new("/somewhere/cargo");
        command.args(["test", "--test", "*"]);
        assert_eq!(typed(&command), "cargo test --test '*'");
    }
}
