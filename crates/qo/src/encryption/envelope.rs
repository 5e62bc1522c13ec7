//! The stored form of an encrypted input or output, and the cipher below it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use qo_core::Json;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt as HkdfSalt};
use serde::Deserialize;

use super::EncryptionError;
use super::key::{Key, KeyId, Keyring};

/// The version of the stored form.
pub(super) const VERSION: u64 = 1;
/// The name of the object's first field.
const MARK: &str = "\"qo_encrypted\"";
/// The length of a salt. With 192 random bits, two payloads never have the same one.
pub(super) const SALT_BYTES: usize = 24;
/// Separates the keys of payloads from any other use of the same key.
const PURPOSE: &[&[u8]] = &[b"qo payload key 1"];

/// A random salt.
pub(super) type Salt = [u8; SALT_BYTES];

/// What a payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Input,
    Output,
    Error,
    Log,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::Error => "error",
            Self::Log => "log",
        }
    }
}

/// What a ciphertext is bound to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Binding<'a> {
    pub(super) role: Role,
    /// The task, or the schedule that makes it, as text.
    pub(super) task: &'a str,
}

impl Binding<'_> {
    /// The authenticated data. Names of keys contain no line end, so the lines before the last one cannot be confused with it.
    fn data(&self, key: &KeyId, part: &str) -> String {
        format!(
            "qo encryption {VERSION}\n{key}\n{}\n{part}\n{}",
            self.role.name(),
            self.task
        )
    }
}

/// The schedule that a payload names.
#[derive(Deserialize)]
struct Scheduled<'a> {
    #[serde(borrow)]
    schedule: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    salt: Cow<'a, str>,
    #[serde(borrow)]
    data: Cow<'a, str>,
}

/// The fields by which any version recognises an encrypted payload.
#[derive(Deserialize)]
struct Label<'a> {
    #[serde(rename = "qo_encrypted")]
    version: u64,
    #[serde(borrow)]
    key: Cow<'a, str>,
}

/// The name of the key with which a payload is encrypted; `None` if it is not encrypted.
pub fn sealed_with(json: &Json) -> Option<String> {
    is_sealed(json).then_some(())?;
    let label: Label<'_> = serde_json::from_str(json.as_str()).ok()?;
    Some(label.key.into_owned())
}

/// Whether a payload has the form of an encrypted one. Looks at its first field only.
pub(super) fn is_sealed(json: &Json) -> bool {
    let fields = json.as_str().trim_start().strip_prefix('{');
    fields.is_some_and(|fields| fields.trim_start().starts_with(MARK))
}

/// The schedule for whose tasks an input is encrypted; `None` if it is not encrypted, or for one task.
pub(super) fn schedule_of(json: &Json) -> Option<String> {
    is_sealed(json).then_some(())?;
    let scheduled: Scheduled<'_> = serde_json::from_str(json.as_str()).ok()?;
    Some(scheduled.schedule.into_owned())
}

/// Encrypts a payload.
pub(super) fn seal(
    keyring: &Keyring,
    binding: Binding<'_>,
    salt: &Salt,
    json: &Json,
) -> Result<Json, EncryptionError> {
    seal_with_note(keyring, binding, salt, json, "")
}

/// Encrypts the input of a schedule, for whose tasks it is. The form names the schedule, because a long name is nowhere else in a task.
pub(super) fn seal_scheduled(
    keyring: &Keyring,
    binding: Binding<'_>,
    salt: &Salt,
    schedule: &str,
    json: &Json,
) -> Result<Json, EncryptionError> {
    let note = format!(r#""schedule":{},"#, serde_json::Value::from(schedule));
    seal_with_note(keyring, binding, salt, json, &note)
}

fn seal_with_note(
    keyring: &Keyring,
    binding: Binding<'_>,
    salt: &Salt,
    json: &Json,
    note: &str,
) -> Result<Json, EncryptionError> {
    let role = binding.role.name();
    if is_sealed(json) {
        return Err(EncryptionError::AlreadyEncrypted { role });
    }
    let key = keyring.first().ok_or(EncryptionError::NoKey)?;
    let cipher = Cipher::new(key, salt)?;
    let data = cipher.seal(binding, PayloadPart::WHOLE, json.as_str())?;
    let text = format!(
        r#"{{{MARK}:{VERSION},"key":"{}",{note}"salt":"{}","data":"{data}"}}"#,
        key.id(),
        URL_SAFE_NO_PAD.encode(salt),
    );
    Json::parse(text).map_err(|_| EncryptionError::TooLarge { role })
}

/// Decrypts a payload. Returns `None` if it is not encrypted.
pub(super) fn open(
    keyring: Option<&Keyring>,
    binding: Binding<'_>,
    json: &Json,
) -> Result<Option<Json>, EncryptionError> {
    let role = binding.role.name();
    if !is_sealed(json) {
        return Ok(None);
    }
    let damaged = |detail| EncryptionError::Damaged { role, detail };
    let label: Label<'_> = serde_json::from_str(json.as_str())
        .map_err(|_| damaged("it has no version or no name of a key"))?;
    if label.version != VERSION {
        let version = label.version;
        return Err(EncryptionError::NewerFormat { role, version });
    }
    let key = find(keyring, &label.key, role)?;
    let envelope: Envelope<'_> =
        serde_json::from_str(json.as_str()).map_err(|_| damaged("it has no salt or no data"))?;
    let cipher = Cipher::new(key, &decode_salt(&envelope.salt, role)?)?;
    let text = cipher.open(binding, PayloadPart::WHOLE, &envelope.data)?;
    let json =
        Json::parse(text).map_err(|_| damaged("it decrypts to something that is not JSON"))?;
    Ok(Some(json))
}

/// The key of this name.
pub(super) fn find<'a>(
    keyring: Option<&'a Keyring>,
    name: &str,
    role: &'static str,
) -> Result<&'a Key, EncryptionError> {
    let id = KeyId::new(name).map_err(|_| EncryptionError::Damaged {
        role,
        detail: "the name of its key is invalid",
    })?;
    let key = keyring.and_then(|keyring| keyring.find(&id));
    key.ok_or(EncryptionError::UnknownKey { role, key: id })
}

pub(super) fn decode_salt(text: &str, role: &'static str) -> Result<Salt, EncryptionError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok();
    bytes
        .and_then(|bytes| Salt::try_from(bytes).ok())
        .ok_or(EncryptionError::Damaged {
            role,
            detail: "its salt is invalid",
        })
}

/// A part of a payload.
#[derive(Clone, Copy)]
pub(super) struct PayloadPart {
    /// The nonce. The numbers of the parts of a payload must differ.
    pub(super) number: u8,
    pub(super) name: &'static str,
}

impl PayloadPart {
    /// The only part.
    const WHOLE: Self = Self {
        number: 0,
        name: "",
    };
}

/// The cipher of one payload.
pub(super) struct Cipher<'a> {
    key: &'a Key,
    cipher: LessSafeKey,
}

impl<'a> Cipher<'a> {
    pub(super) fn new(key: &'a Key, salt: &Salt) -> Result<Self, EncryptionError> {
        let secret = HkdfSalt::new(HKDF_SHA256, salt).extract(key.secret());
        // Fails only for keys longer than any cipher has.
        let derived = secret
            .expand(PURPOSE, &AES_256_GCM)
            .map_err(|_| EncryptionError::InvalidKey)?;
        Ok(Self {
            key,
            cipher: LessSafeKey::new(UnboundKey::from(derived)),
        })
    }

    /// Encrypts a text as base64.
    pub(super) fn seal(
        &self,
        binding: Binding<'_>,
        part: PayloadPart,
        text: &str,
    ) -> Result<String, EncryptionError> {
        let mut bytes = text.as_bytes().to_vec();
        let data = Aad::from(binding.data(self.key.id(), part.name));
        self.cipher
            .seal_in_place_append_tag(nonce(part.number), data, &mut bytes)
            .map_err(|_| EncryptionError::TooLarge {
                role: binding.role.name(),
            })?;
        Ok(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Decrypts a text.
    pub(super) fn open(
        &self,
        binding: Binding<'_>,
        part: PayloadPart,
        text: &str,
    ) -> Result<String, EncryptionError> {
        let role = binding.role.name();
        let damaged = |detail| EncryptionError::Damaged { role, detail };
        let mut bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| damaged("its data are not base64"))?;
        let data = Aad::from(binding.data(self.key.id(), part.name));
        let length = self
            .cipher
            .open_in_place(nonce(part.number), data, &mut bytes)
            .map_err(|_| EncryptionError::Refused {
                role,
                key: self.key.id().clone(),
            })?
            .len();
        bytes.truncate(length);
        String::from_utf8(bytes).map_err(|_| damaged("it decrypts to something that is not text"))
    }
}

fn nonce(number: u8) -> Nonce {
    let mut bytes = [0; ring::aead::NONCE_LEN];
    bytes[0] = number;
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BINDING: Binding<'static> = Binding {
        role: Role::Input,
        task: "id/550e8400-e29b-41d4-a716-446655440000",
    };

    fn keyring(name: &str, byte: u8) -> Keyring {
        Keyring::new(Key::new(name.parse().unwrap(), [byte; 32]))
    }

    fn json(text: &str) -> Json {
        Json::parse(text).unwrap()
    }

    fn sealed() -> Json {
        seal(&keyring("a", 1), BINDING, &[9; SALT_BYTES], &json("[1, 2]")).unwrap()
    }

    /// The stored form must never change: stored payloads have it. This one was made with the cryptography of Node.js.
    #[test]
    fn the_stored_form_is_fixed() {
        let stored = concat!(
            r#"{"qo_encrypted":1,"key":"a","salt":"CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJ","#,
            r#""data":"VSCz96PwCVPdd30P8Yp5BkGzumbqqw"}"#
        );
        assert_eq!(sealed().as_str(), stored);
        let opened = open(Some(&keyring("a", 1)), BINDING, &json(stored)).unwrap();
        assert_eq!(opened.unwrap().as_str(), "[1, 2]");
        assert_eq!(sealed_with(&sealed()).as_deref(), Some("a"));
        assert_eq!(sealed_with(&json(r#"{"key":"a"}"#)), None);
    }

    #[test]
    fn another_key_task_or_role_is_refused() {
        let refused = EncryptionError::Refused {
            role: "input",
            key: "a".parse().unwrap(),
        };
        let other_key = open(Some(&keyring("a", 2)), BINDING, &sealed());
        assert_eq!(other_key, Err(refused.clone()));
        let other_task = Binding {
            task: "id/550e8400-e29b-41d4-a716-446655440001",
            ..BINDING
        };
        let keys = keyring("a", 1);
        assert_eq!(open(Some(&keys), other_task, &sealed()), Err(refused));
        let other_role = Binding {
            role: Role::Output,
            ..BINDING
        };
        assert!(matches!(
            open(Some(&keys), other_role, &sealed()),
            Err(EncryptionError::Refused { role: "output", .. })
        ));
        for none in [None, Some(&keyring("b", 1))] {
            assert_eq!(
                open(none, BINDING, &sealed()),
                Err(EncryptionError::UnknownKey {
                    role: "input",
                    key: "a".parse().unwrap()
                })
            );
        }
    }

    #[test]
    fn changed_and_truncated_bytes_are_refused() {
        let keys = keyring("a", 1);
        let text = sealed().as_str().to_owned();
        let start = text.find("\"data\":\"").unwrap() + 8;
        for position in start..text.len() - 2 {
            let mut changed = text.clone().into_bytes();
            changed[position] = if changed[position] == b'A' {
                b'B'
            } else {
                b'A'
            };
            let changed = json(&String::from_utf8(changed).unwrap());
            assert!(open(Some(&keys), BINDING, &changed).is_err(), "{position}");
            let truncated = json(&format!("{}\"}}", &text[..position]));
            assert!(
                open(Some(&keys), BINDING, &truncated).is_err(),
                "{position}"
            );
        }
        for damaged in [
            r#"{"qo_encrypted":1}"#,
            r#"{"qo_encrypted":"x","key":"a"}"#,
            r#"{"qo_encrypted":1,"key":"a"}"#,
            r#"{"qo_encrypted":1,"key":"a","salt":"","data":""}"#,
            r#"{"qo_encrypted":1,"key":"a b","salt":"","data":""}"#,
        ] {
            let opened = open(Some(&keys), BINDING, &json(damaged));
            assert!(
                matches!(opened, Err(EncryptionError::Damaged { .. })),
                "{damaged}: {opened:?}"
            );
        }
        let newer = json(r#"{"qo_encrypted":2,"key":"a","post_quantum":true}"#);
        assert_eq!(
            open(Some(&keys), BINDING, &newer),
            Err(EncryptionError::NewerFormat {
                role: "input",
                version: 2
            })
        );
        assert_eq!(sealed_with(&newer).as_deref(), Some("a"));
    }

    #[test]
    fn an_encrypted_payload_is_not_encrypted_again() {
        let again = seal(&keyring("a", 1), BINDING, &[1; SALT_BYTES], &sealed());
        assert_eq!(
            again,
            Err(EncryptionError::AlreadyEncrypted { role: "input" })
        );
    }

    #[test]
    fn white_space_and_order_of_fields_do_not_matter() {
        let value: serde_json::Value = serde_json::from_str(sealed().as_str()).unwrap();
        let text = format!(
            " {{ \"qo_encrypted\" : 1, \"later\": [], \"data\":{}, \"salt\":{}, \"key\":\"a\"}}",
            value["data"], value["salt"]
        );
        let opened = open(Some(&keyring("a", 1)), BINDING, &json(&text)).unwrap();
        assert_eq!(opened, Some(json("[1, 2]")));
    }

    proptest! {
        #[test]
        fn any_text_round_trips(
            text in any::<String>(),
            secret in any::<[u8; 32]>(),
            salt in any::<[u8; SALT_BYTES]>(),
            task in any::<String>(),
        ) {
            let keys = Keyring::new(Key::new("k".parse().unwrap(), secret));
            let plain = Json::from_value(&text).unwrap();
            let binding = Binding { role: Role::Output, task: &task };
            let sealed = seal(&keys, binding, &salt, &plain).unwrap();
            prop_assert_eq!(open(Some(&keys), binding, &sealed).unwrap(), Some(plain));
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let keys = keyring("a", 1);
            let text = format!("{{\"qo_encrypted\":1,\"key\":\"a\",\"salt\":{text:?},\"data\":{text:?}}}");
            if let Ok(json) = Json::parse(text) {
                prop_assert!(open(Some(&keys), BINDING, &json).is_err());
            }
        }
    }
}
