//! The stored form of an encrypted error: a text in two parts; the first survives in the shortened copy of the history.
//!
//! | where | bytes kept | what a reader gets |
//! | --- | --- | --- |
//! | the task's last error | 4,096 | both parts |
//! | the event in its history | 512 | the first part, and a mark that there was more |
//!
//! The authenticated data of the first part say whether a second one follows, so nobody can drop it unnoticed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use qo_core::limits::{
    ATTEMPT_LOG_MAX_BYTES, ERROR_MAX_BYTES, EVENT_ERROR_MAX_BYTES, cut_front, cut_text,
};

use super::EncryptionError;
use super::envelope::{Binding, Cipher, PayloadPart, SALT_BYTES, Salt, VERSION, decode_salt, find};
use super::key::{KEY_ID_MAX_BYTES, Keyring};

/// The start of the stored form.
const PREFIX: &str = "qo-encrypted:";
/// The mark of a text that was cut.
const MARK: &str = "…";
/// The maximum size of each part before encryption.
const FIRST_MAX_BYTES: usize = 300;
const SECOND_MAX_BYTES: usize = 2_600;
/// The maximum size of a log before encryption.
const LOG_MAX_BYTES: usize = 17 * 1024;
/// The only part. Its name in the authenticated data says that nothing follows.
const ONLY: PayloadPart = PayloadPart {
    number: 0,
    name: "last",
};
/// The first of two parts, and the second.
const FIRST: PayloadPart = PayloadPart {
    number: 0,
    name: "more",
};
const SECOND: PayloadPart = PayloadPart {
    number: 1,
    name: "last",
};

/// The encoded size of a part.
const fn encoded(bytes: usize) -> usize {
    let tag_bytes = 16;
    ((bytes + tag_bytes) * 4).div_ceil(3)
}

/// The size of everything before the first part: prefix, version, name of the key, salt, and their separators.
const HEAD_MAX_BYTES: usize =
    PREFIX.len() + 2 + KEY_ID_MAX_BYTES + 1 + (SALT_BYTES * 4).div_ceil(3) + 1;
// The first part and the separator after it survive a cut, which puts a mark at the end.
const _: () =
    assert!(HEAD_MAX_BYTES + encoded(FIRST_MAX_BYTES) < EVENT_ERROR_MAX_BYTES - MARK.len());
const _: () = assert!(
    HEAD_MAX_BYTES + encoded(FIRST_MAX_BYTES) + 1 + encoded(SECOND_MAX_BYTES) <= ERROR_MAX_BYTES
);

/// The name of the key with which an error is encrypted; `None` if it is not encrypted.
pub fn error_sealed_with(error: &str) -> Option<&str> {
    let (_version, rest) = error.strip_prefix(PREFIX)?.split_once(':')?;
    Some(rest.split_once(':')?.0)
}

const _: () = assert!(HEAD_MAX_BYTES + encoded(LOG_MAX_BYTES) <= ATTEMPT_LOG_MAX_BYTES);

/// Encrypts an error. A text longer than both parts is cut.
pub(super) fn seal(
    keyring: &Keyring,
    binding: Binding<'_>,
    salt: &Salt,
    error: &str,
) -> Result<String, EncryptionError> {
    let key = keyring.first().ok_or(EncryptionError::NoKey)?;
    let error = cut_text(error, FIRST_MAX_BYTES + SECOND_MAX_BYTES);
    let (first, second) = split(&error);
    let cipher = Cipher::new(key, salt)?;
    let part = if second.is_empty() { ONLY } else { FIRST };
    let mut text = format!(
        "{PREFIX}{VERSION}:{}:{}:{}",
        key.id(),
        URL_SAFE_NO_PAD.encode(salt),
        cipher.seal(binding, part, first)?
    );
    if !second.is_empty() {
        text.push(':');
        text.push_str(&cipher.seal(binding, SECOND, second)?);
    }
    Ok(text)
}

/// Encrypts a log: a text in one part, which nobody shortens.
pub(super) fn seal_log(
    keyring: &Keyring,
    binding: Binding<'_>,
    salt: &Salt,
    log: &str,
) -> Result<String, EncryptionError> {
    let key = keyring.first().ok_or(EncryptionError::NoKey)?;
    let log = cut_front(log, LOG_MAX_BYTES);
    Ok(format!(
        "{PREFIX}{VERSION}:{}:{}:{}",
        key.id(),
        URL_SAFE_NO_PAD.encode(salt),
        Cipher::new(key, salt)?.seal(binding, ONLY, &log)?
    ))
}

/// Decrypts an error or a log. Returns `None` if it is not encrypted.
pub(super) fn open(
    keyring: Option<&Keyring>,
    binding: Binding<'_>,
    error: &str,
) -> Result<Option<String>, EncryptionError> {
    let role = binding.role.name();
    let Some(text) = error.strip_prefix(PREFIX) else {
        return Ok(None);
    };
    let damaged = |detail| EncryptionError::Damaged { role, detail };
    let mut fields = text.split(':');
    let mut field = || fields.next().ok_or_else(|| damaged("it is incomplete"));
    let version: u64 = field()?
        .parse()
        .map_err(|_| damaged("its version is invalid"))?;
    if version != VERSION {
        return Err(EncryptionError::NewerFormat { role, version });
    }
    let key = find(keyring, field()?, role)?;
    let cipher = Cipher::new(key, &decode_salt(field()?, role)?)?;
    let first = field()?;
    let Some(second) = fields.next() else {
        return cipher.open(binding, ONLY, first).map(Some);
    };
    let mut opened = cipher.open(binding, FIRST, first)?;
    if second.ends_with(MARK) {
        opened.push_str(MARK);
    } else {
        opened.push_str(&cipher.open(binding, SECOND, second)?);
    }
    Ok(Some(opened))
}

/// Splits a text into the two parts, between two characters.
fn split(text: &str) -> (&str, &str) {
    let mut end = text.len().min(FIRST_MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::envelope::Role;
    use super::super::key::Key;
    use super::*;

    const BINDING: Binding<'static> = Binding {
        role: Role::Error,
        task: "id/550e8400-e29b-41d4-a716-446655440000",
    };

    fn keyring() -> Keyring {
        let name = "k".repeat(KEY_ID_MAX_BYTES);
        Keyring::new(Key::new(name.parse().unwrap(), [7; 32]))
    }

    fn sealed(text: &str) -> String {
        seal(&keyring(), BINDING, &[3; SALT_BYTES], text).unwrap()
    }

    fn opened(text: &str) -> String {
        open(Some(&keyring()), BINDING, text).unwrap().unwrap()
    }

    #[test]
    fn errors_round_trip_and_the_shortened_copy_shows_the_first_part() {
        for length in [0, 1, 299, 300, 301, 2_000, 2_900] {
            let text = "x".repeat(length);
            let sealed = sealed(&text);
            assert!(sealed.len() <= ERROR_MAX_BYTES, "{length}");
            assert_eq!(opened(&cut_text(&sealed, ERROR_MAX_BYTES)), text);
            let shown = opened(&cut_text(&sealed, EVENT_ERROR_MAX_BYTES));
            if length <= FIRST_MAX_BYTES {
                assert_eq!(shown, text);
            } else {
                assert!(shown.starts_with(&text[..FIRST_MAX_BYTES]), "{length}");
                assert!(shown == text || shown.ends_with(MARK), "{length}");
            }
        }
        let long = opened(&sealed(&"ä€😀".repeat(1_000)));
        assert!(long.starts_with("ä€😀") && long.ends_with(MARK));
    }

    /// The stored form must never change. This one was made with the cryptography of Node.js.
    #[test]
    fn the_stored_form_is_fixed() {
        let keyring = Keyring::new(Key::new("k".parse().unwrap(), [7; 32]));
        let stored =
            "qo-encrypted:1:k:AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMD:MnZDKRfTm0jioHcMMS7xV8ybWss";
        let sealed = seal(&keyring, BINDING, &[3; SALT_BYTES], "boom").unwrap();
        assert_eq!(sealed, stored);
        let opened = open(Some(&keyring), BINDING, stored).unwrap();
        assert_eq!(opened.as_deref(), Some("boom"));
    }

    #[test]
    fn logs_round_trip_and_fit_the_record() {
        let binding = Binding {
            role: Role::Log,
            ..BINDING
        };
        for length in [0, 1, 5_000, LOG_MAX_BYTES, 100_000] {
            let text = "z".repeat(length);
            let sealed = seal_log(&keyring(), binding, &[3; SALT_BYTES], &text).unwrap();
            assert!(sealed.len() <= ATTEMPT_LOG_MAX_BYTES, "{length}");
            let opened = open(Some(&keyring()), binding, &sealed).unwrap().unwrap();
            assert_eq!(opened, *cut_front(&text, LOG_MAX_BYTES));
            // A log is not an error.
            assert!(open(Some(&keyring()), BINDING, &sealed).is_err());
        }
    }

    #[test]
    fn a_changed_error_is_refused() {
        let whole = sealed(&"y".repeat(600));
        let open = |text: &str| open(Some(&keyring()), BINDING, text);
        // Without its second part.
        let (first, _) = whole.rsplit_once(':').unwrap();
        assert!(matches!(open(first), Err(EncryptionError::Refused { .. })));
        // The second part twice.
        let short = sealed("short");
        let doubled = format!("{short}:{}", short.rsplit_once(':').unwrap().1);
        assert!(matches!(
            open(&doubled),
            Err(EncryptionError::Refused { .. })
        ));
        let other_task = Binding {
            task: "id/other",
            ..BINDING
        };
        assert!(super::open(Some(&keyring()), other_task, &whole).is_err());
        for damaged in ["qo-encrypted:", "qo-encrypted:1", "qo-encrypted:x:a:b:c"] {
            assert!(
                matches!(open(damaged), Err(EncryptionError::Damaged { .. })),
                "{damaged}"
            );
        }
        assert!(matches!(
            open("qo-encrypted:2:a:b"),
            Err(EncryptionError::NewerFormat { version: 2, .. })
        ));
        assert_eq!(open("a plain error"), Ok(None));
    }

    #[test]
    fn the_name_of_the_key_is_readable() {
        let name = "k".repeat(KEY_ID_MAX_BYTES);
        assert_eq!(error_sealed_with(&sealed("x")), Some(name.as_str()));
        assert_eq!(error_sealed_with("a plain error"), None);
    }

    proptest! {
        #[test]
        fn any_error_round_trips_and_survives_the_cut(text in "(?s).{0,800}") {
            let sealed = sealed(&text);
            let whole = opened(&cut_text(&sealed, ERROR_MAX_BYTES));
            prop_assert_eq!(&whole, &*cut_text(&text, FIRST_MAX_BYTES + SECOND_MAX_BYTES));
            let shown = opened(&cut_text(&sealed, EVENT_ERROR_MAX_BYTES));
            prop_assert!(whole.starts_with(shown.trim_end_matches(MARK)));
        }

        #[test]
        fn no_text_makes_it_panic(text in "(?s).{0,80}") {
            let found = open(Some(&keyring()), BINDING, &format!("{PREFIX}{text}"));
            prop_assert!(found.is_err());
        }
    }
}
