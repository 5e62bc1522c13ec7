//! Single keys from the terminal, without Enter.

use std::io::{BufRead, Read};

use tokio::sync::mpsc;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// The arrow up.
    Up,
    /// The arrow down.
    Down,
    /// A letter, or any other character.
    Char(char),
}

/// The keys of the terminal at standard input. Dropping it restores the settings of the terminal.
#[derive(Debug)]
pub struct Keyboard {
    keys: mpsc::UnboundedReceiver<Key>,
    #[cfg(unix)]
    settings: rustix::termios::Termios,
}

impl Keyboard {
    /// Reads keys as they are pressed, and does not show them. Ctrl-C still sends its signal. `None` if the terminal cannot do that.
    #[cfg(unix)]
    pub fn open() -> Option<Self> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let settings = tcgetattr(std::io::stdin()).ok()?;
        let mut single = settings.clone();
        single
            .local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Now, &single).ok()?;
        let (sender, keys) = mpsc::unbounded_channel();
        // A read cannot be cancelled. The thread ends with the process.
        std::thread::spawn(move || read_keys(&mut std::io::stdin().lock(), &sender));
        Some(Self { keys, settings })
    }

    /// Single keys need a Unix terminal.
    #[cfg(not(unix))]
    pub fn open() -> Option<Self> {
        None
    }

    /// The next key. Waits forever once the terminal is gone.
    pub async fn next(&mut self) -> Key {
        match self.keys.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

#[cfg(unix)]
impl Drop for Keyboard {
    fn drop(&mut self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.settings);
    }
}

/// Reads keys until the input ends or nobody wants them any more.
fn read_keys(input: &mut impl BufRead, keys: &mpsc::UnboundedSender<Key>) {
    let mut bytes = input.bytes().map_while(Result::ok);
    while let Some(byte) = bytes.next() {
        let key = match byte {
            // An arrow is an escape sequence of three bytes. The terminal sends them together.
            0x1b => match (bytes.next(), bytes.next()) {
                (Some(b'[' | b'O'), Some(b'A')) => Key::Up,
                (Some(b'[' | b'O'), Some(b'B')) => Key::Down,
                _ => continue,
            },
            byte => Key::Char(char::from(byte)),
        };
        if keys.send(key).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_and_characters_are_keys() {
        let (sender, mut keys) = mpsc::unbounded_channel();
        read_keys(&mut b"j\x1b[A\x1b[Bp\x1b[Cq".as_slice(), &sender);
        let mut read = Vec::new();
        while let Ok(key) = keys.try_recv() {
            read.push(key);
        }
        let expected = [
            Key::Char('j'),
            Key::Up,
            Key::Down,
            Key::Char('p'),
            Key::Char('q'),
        ];
        assert_eq!(read, expected);
    }
}
