//! Keys, their names, and the keyring of a process.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};

use super::EncryptionError;

/// The length of a key.
const KEY_BYTES: usize = 32;
/// The maximum length of a key's name. It is part of each encrypted payload and error.
pub(super) const KEY_ID_MAX_BYTES: usize = 32;
/// The maximum size of a key file, far above what any rotation needs.
const FILE_MAX_BYTES: u64 = 64 * 1024;

/// The name of a key. It is stored unencrypted with everything that the key encrypts, so that a reader finds the key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(Box<str>);

impl KeyId {
    /// Validates a name: 1 to 32 letters, digits, dots, hyphens and underscores.
    pub fn new(name: &str) -> Result<Self, EncryptionError> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > KEY_ID_MAX_BYTES || !name.bytes().all(is_valid) {
            return Err(EncryptionError::InvalidKeyId);
        }
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyId {
    type Err = EncryptionError;

    fn from_str(name: &str) -> Result<Self, EncryptionError> {
        Self::new(name)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// A named key of 32 bytes. `Debug` shows only its name.
///
/// Its text form is `NAME:BASE64`, as `qo key generate` prints it.
#[derive(Clone)]
pub struct Key {
    id: KeyId,
    secret: [u8; KEY_BYTES],
}

impl Key {
    /// A key from its bytes, for instance as a key management service returned them. The bytes must be random.
    pub fn new(id: KeyId, secret: [u8; KEY_BYTES]) -> Self {
        Self { id, secret }
    }

    /// A new random key, from the operating system's generator.
    pub fn generate(id: KeyId) -> Result<Self, EncryptionError> {
        let mut secret = [0; KEY_BYTES];
        SystemRandom::new()
            .fill(&mut secret)
            .map_err(|_| EncryptionError::NoRandomness)?;
        Ok(Self { id, secret })
    }

    /// The key's name.
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// The key in its text form. It contains the secret.
    pub fn reveal(&self) -> String {
        format!("{}:{}", self.id, STANDARD.encode(self.secret))
    }

    pub(super) fn secret(&self) -> &[u8] {
        &self.secret
    }
}

impl FromStr for Key {
    type Err = EncryptionError;

    /// Parses the text form. No error repeats any of it.
    fn from_str(text: &str) -> Result<Self, EncryptionError> {
        let (id, secret) = text.split_once(':').ok_or(EncryptionError::InvalidKey)?;
        let id = KeyId::new(id)?;
        let bytes = STANDARD
            .decode(secret)
            .map_err(|_| EncryptionError::InvalidKey)?;
        let secret = bytes.try_into().map_err(|_| EncryptionError::InvalidKey)?;
        Ok(Self { id, secret })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The keys of a process: the first one encrypts, all of them decrypt.
#[derive(Debug, Clone)]
pub struct Keyring {
    keys: Vec<Key>,
}

impl Keyring {
    /// A keyring that encrypts and decrypts with this key.
    pub fn new(key: Key) -> Self {
        Self { keys: vec![key] }
    }

    /// Adds a key that only decrypts. Fails if a key of this name exists.
    pub fn with(mut self, key: Key) -> Result<Self, EncryptionError> {
        if self.find(key.id()).is_some() {
            return Err(EncryptionError::DuplicateKey { key: key.id });
        }
        self.keys.push(key);
        Ok(self)
    }

    /// Parses the content of a key file: keys in their text form, one a line or separated by commas or spaces. Lines that start with
    /// `#` are comments.
    pub fn parse(text: &str) -> Result<Self, EncryptionError> {
        let mut keys = text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
            .flat_map(|line| line.split([',', ' ', '\t', '\r']))
            .filter(|word| !word.is_empty())
            .map(str::parse::<Key>);
        let first = keys.next().ok_or(EncryptionError::NoKey)??;
        keys.try_fold(Self::new(first), |keyring, key| keyring.with(key?))
    }

    /// Reads a key file.
    pub fn read(path: &Path) -> Result<Self, EncryptionError> {
        let failed = |detail: String| EncryptionError::KeyFile {
            path: path.display().to_string(),
            detail,
        };
        let size = std::fs::metadata(path)
            .map_err(|error| failed(error.to_string()))?
            .len();
        if size > FILE_MAX_BYTES {
            return Err(failed(format!(
                "it has {size} bytes; the maximum is {FILE_MAX_BYTES}"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Self::parse(&text).map_err(|error| failed(error.to_string()))
    }

    /// The names of the keys. The first one encrypts.
    pub fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.keys.iter().map(Key::id)
    }

    /// The key that encrypts.
    pub(super) fn first(&self) -> Option<&Key> {
        self.keys.first()
    }

    pub(super) fn find(&self, id: &KeyId) -> Option<&Key> {
        self.keys.iter().find(|key| key.id == *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, byte: u8) -> Key {
        Key::new(name.parse().unwrap(), [byte; KEY_BYTES])
    }

    #[test]
    fn a_key_round_trips_through_its_text_and_hides_in_debug() {
        let key = Key::generate("2026-11".parse().unwrap()).unwrap();
        let text = key.reveal();
        let parsed: Key = text.parse().unwrap();
        assert_eq!((parsed.id, parsed.secret), (key.id.clone(), key.secret));
        let secret = text.split_once(':').unwrap().1;
        assert!(!format!("{key:?} {:?}", Keyring::new(key.clone())).contains(secret));
        let other = Key::generate("2026-11".parse().unwrap()).unwrap();
        assert_ne!(other.secret, key.secret);
    }

    #[test]
    fn a_keyring_is_parsed_from_lines_and_commas() {
        let (a, b, c) = (
            key("a", 1).reveal(),
            key("b", 2).reveal(),
            key("c", 3).reveal(),
        );
        for text in [
            format!("# keys\n{a}\n\n  # older\n{b}\r\n{c}\n"),
            format!("{a},{b}, {c}"),
        ] {
            let keyring = Keyring::parse(&text).unwrap();
            let ids: Vec<_> = keyring.ids().map(KeyId::as_str).collect();
            assert_eq!(ids, ["a", "b", "c"]);
        }
    }

    #[test]
    fn bad_keys_are_refused_and_no_error_repeats_them() {
        let short = format!("a:{}", STANDARD.encode([7; 31]));
        for (text, error) in [
            ("", EncryptionError::NoKey),
            ("# nothing", EncryptionError::NoKey),
            ("s3cr3t", EncryptionError::InvalidKey),
            ("a:s3cr3t", EncryptionError::InvalidKey),
            (short.as_str(), EncryptionError::InvalidKey),
            (":s3cr3t", EncryptionError::InvalidKeyId),
            ("a b:s3cr3t", EncryptionError::InvalidKey),
            ("é:s3cr3t", EncryptionError::InvalidKeyId),
        ] {
            let found = Keyring::parse(text).unwrap_err();
            assert_eq!(found, error, "{text}");
            assert!(!found.to_string().contains("s3cr3t"));
        }
        assert_eq!(
            KeyId::new(&"x".repeat(KEY_ID_MAX_BYTES + 1)),
            Err(EncryptionError::InvalidKeyId)
        );
        let twice = format!("{}\n{}", key("a", 1).reveal(), key("a", 2).reveal());
        assert!(matches!(
            Keyring::parse(&twice),
            Err(EncryptionError::DuplicateKey { .. })
        ));
        assert!(matches!(
            Keyring::read(Path::new("/nonexistent/keys")),
            Err(EncryptionError::KeyFile { .. })
        ));
    }
}
