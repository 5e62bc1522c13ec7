//! Encryption of inputs, outputs, errors and logs by the client.
//!
//! A [`Queue`](crate::Queue) that was given a [`Keyring`] encrypts what it writes and decrypts what it reads. The store, brokers,
//! clusters, servers and dashboards see ciphertext and the name of the key. It works in every mode, because the engines do not know
//! about it.
//!
//! ```
//! use qo::encryption::{Key, Keyring};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keyring = Keyring::new(Key::generate("2026-11".parse()?)?); // or Keyring::read("keys.txt".as_ref())?
//! let queue = qo::connect("memory:").await?.encrypted(keyring);
//! let submitted = queue.task("greet", &"Ada")?.submit().await?;
//!
//! let stored = queue.engine().get(submitted.task.id).await?;
//! assert!(!format!("{stored:?}").contains("Ada"));
//! assert_eq!(queue.input(&submitted.task).await?.as_str(), "\"Ada\"");
//! # Ok(())
//! # }
//! ```
//!
//! # The stored form
//!
//! | what | form |
//! | --- | --- |
//! | input, output | the JSON object `{"qo_encrypted":1,"key":NAME,"salt":…,"data":…}` |
//! | input of a schedule and its tasks | the same with `"schedule":NAME` |
//! | error | the text `qo-encrypted:1:NAME:SALT:PART[:PART]` |
//!
//! Salt, data and parts are base64url without padding. A new random salt of 24 bytes and the named key give the key of one payload
//! (HKDF with SHA-256), which encrypts that payload only (AES-256 in GCM mode). Other designs wrap a random key instead. Deriving it
//! stores less, has no limit on the number of payloads per named key, and demands less of the random numbers: salts must differ, but
//! need not be secret.
//!
//! An error has two parts, because the history of a task keeps only the first 512 bytes of an error. The first part is short enough to
//! stay whole.
//!
//! # What the encryption is bound to
//!
//! The authenticated data are the version, the name of the key, the role (input, output or error) and the task, so that whoever
//! writes to the store cannot show a reader the payload of another task. The task is named by its id. The input of a task
//! with an idempotency key is bound to the key and its scope instead: of several concurrent submits any may create the task, under an id that
//! another one chose, and none of them knows that id beforehand.
//!
//! The input of a [schedule](crate::schedule) is encrypted once, when it is defined. Whoever fires the schedule passes the ciphertext on and
//! needs no key. It is bound to the name of the schedule and the type of its tasks, because their ids are not known yet. So whoever writes to
//! the store can give it to another task of the same type, which is little more than triggering the schedule, but not to a task of another
//! type.
//!
//! The attempt is not bound. Whoever can put an older output of a task into its record can as well restore the whole older record.

mod envelope;
mod error_text;
mod key;
mod sealer;

pub use envelope::sealed_with;
pub use error_text::error_sealed_with;
pub use key::{Key, KeyId, Keyring};
pub(crate) use sealer::{Sealer, new_id};

use thiserror::Error;

/// Why something cannot be encrypted or decrypted. No message contains a key or a payload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncryptionError {
    /// The name of a key is invalid.
    #[error("a key's name must have 1 to 32 letters, digits, dots, hyphens and underscores")]
    InvalidKeyId,
    /// The text form of a key is invalid.
    #[error("a key must be NAME:BASE64 with 32 bytes in base64; `qo key generate` makes one")]
    InvalidKey,
    /// A key file or variable contains no key.
    #[error("there is no key; `qo key generate` makes one")]
    NoKey,
    /// Two keys have the same name.
    #[error("two keys have the name {key}; remove one")]
    DuplicateKey {
        /// The name.
        key: KeyId,
    },
    /// A key file cannot be used.
    #[error("cannot use the key file {path}: {detail}")]
    KeyFile {
        /// Its path.
        path: String,
        /// Why.
        detail: String,
    },
    /// The operating system returned no random bytes.
    #[error("the operating system returned no random bytes")]
    NoRandomness,
    /// The key of an encrypted payload is missing.
    #[error("the {role} is encrypted with key {key}, which is not configured here")]
    UnknownKey {
        /// `input`, `output` or `error`.
        role: &'static str,
        /// The name of the key.
        key: KeyId,
    },
    /// The bytes do not fit the key and the task.
    #[error(
        "the {role} cannot be decrypted with key {key}: this is another key of the same name, or the stored bytes were changed or belong to another task"
    )]
    Refused {
        /// `input`, `output` or `error`.
        role: &'static str,
        /// The name of the key.
        key: KeyId,
    },
    /// The stored form is incomplete or damaged.
    #[error("the encrypted {role} is damaged: {detail}")]
    Damaged {
        /// `input`, `output` or `error`.
        role: &'static str,
        /// What is wrong.
        detail: &'static str,
    },
    /// A later version of qo encrypted it.
    #[error(
        "the {role} is encrypted in format {version}, which this version of qo does not know; update qo"
    )]
    NewerFormat {
        /// `input`, `output` or `error`.
        role: &'static str,
        /// The format.
        version: u64,
    },
    /// The payload already has the form of an encrypted one, so a reader could not tell them apart.
    #[error("the {role} already looks like an encrypted payload; pass the plaintext")]
    AlreadyEncrypted {
        /// `input` or `output`.
        role: &'static str,
    },
    /// The payload is too large to encrypt.
    #[error("the {role} is too large to encrypt")]
    TooLarge {
        /// `input` or `output`.
        role: &'static str,
    },
    /// The task refers to blobs.
    #[error(
        "a task that refers to blobs cannot be encrypted: blobs are stored unencrypted, and their garbage collection reads the references; submit it without encryption keys"
    )]
    RefersToBlobs,
}
