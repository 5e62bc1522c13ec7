//! How a cargo command is shown.

use std::process::Command;

/// The command as one would type it into a shell.
pub(crate) fn typed(command: &Command) -> String {
    let mut text = String::from("cargo");
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
    fn it_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("/somewhere/cargo");
        command.args(["test", "--test", "*"]);
        assert_eq!(typed(&command), "cargo test --test '*'");
    }
}
