//! Tokens and their records.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use qo_core::extra::Extra;
use qo_core::{Sha256, Tag, Timestamp};
use qo_store::runtime::Runtime;
use ring::{digest, hmac};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::limits::{LimitedGrant, TokenLimits};

/// The prefix of every token, so that a leaked token can be recognised.
const PREFIX: &str = "qo_";
const SECRET_BYTES: usize = 32;

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Submit tasks.
    Submit,
    /// Claim tasks, report their results, and read them.
    Work,
    /// Read everything.
    Read,
    /// Everything.
    Admin,
}

/// The error for an unknown scope.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown scope {text:?}: use submit, work, read or admin")]
pub struct UnknownScope {
    text: String,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Submit, Self::Work, Self::Read, Self::Admin];

    /// The name of the scope.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Work => "work",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.as_str() == text)
            .ok_or_else(|| UnknownScope {
                text: text.chars().take(32).collect(),
            })
    }
}

/// The stored record of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// The public part of the token: 16 hexadecimal digits.
    pub id: String,
    /// The token's name, for people.
    pub name: Tag,
    /// The scopes of a token without limits.
    pub scopes: BTreeSet<Scope>,
    /// What a limited token allows. Its `scopes` are empty then, so that a server of an earlier version, which knows no limits, allows
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<LimitedGrant>,
    /// The hash of the token's secret part.
    pub sha256: Sha256,
    /// When the token was created.
    pub created_at: Timestamp,
    /// When the token expires. `None` if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A new token. Its text is available only here.
#[derive(Clone)]
pub struct NewToken {
    /// The stored record.
    pub record: TokenRecord,
    text: String,
}

/// The error for a text that is not a token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("this is not a qo token: a token starts with qo_ and is shown once, when it is created")]
pub struct InvalidToken;

impl NewToken {
    /// Generates a token.
    pub fn draw(
        runtime: &dyn Runtime,
        name: Tag,
        scopes: impl IntoIterator<Item = Scope>,
        now: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> Self {
        let mut secret = [0; SECRET_BYTES];
        for chunk in secret.chunks_mut(8) {
            chunk.copy_from_slice(&runtime.random().to_le_bytes()[..chunk.len()]);
        }
        let secret = URL_SAFE_NO_PAD.encode(secret);
        let id = format!("{:016x}", runtime.random());
        let record = TokenRecord {
            sha256: hash(&secret),
            name,
            scopes: scopes.into_iter().collect(),
            limited: None,
            created_at: now,
            expires_at,
            extra: Extra::default(),
            id: id.clone(),
        };
        Self {
            record,
            text: format!("{PREFIX}{id}_{secret}"),
        }
    }

    /// The token that follows from a secret: every process that knows the secret accepts it, and it allows everything. The secret cannot be
    /// computed from it.
    pub fn of_secret(name: Tag, secret: &[u8]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let id = hmac::sign(&key, b"qo: the id of the token");
        let mut start = [0; 8];
        start.copy_from_slice(&id.as_ref()[..8]);
        let id = format!("{:016x}", u64::from_be_bytes(start));
        let secret = URL_SAFE_NO_PAD.encode(hmac::sign(&key, b"qo: the secret of the token"));
        let record = TokenRecord {
            sha256: hash(&secret),
            name,
            scopes: BTreeSet::from([Scope::Admin]),
            limited: None,
            created_at: Timestamp::MIN,
            expires_at: None,
            extra: Extra::default(),
            id: id.clone(),
        };
        Self {
            record,
            text: format!("{PREFIX}{id}_{secret}"),
        }
    }

    /// The token with limits.
    #[must_use]
    pub fn limited(mut self, limits: TokenLimits) -> Self {
        self.record.limit(limits);
        self
    }

    /// The text of the token, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken")
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

impl TokenRecord {
    /// What the token allows, within its limits.
    pub fn granted(&self) -> &BTreeSet<Scope> {
        let limited = self.limited.as_ref();
        limited.map_or(&self.scopes, |grant| &grant.scopes)
    }

    /// The limits of the token.
    pub fn limits(&self) -> TokenLimits {
        let limits = self.limited.as_ref().map(|grant| grant.limits.clone());
        limits.unwrap_or_default()
    }

    /// Limits the token.
    pub fn limit(&mut self, limits: TokenLimits) {
        if limits.is_empty() {
            return;
        }
        let scopes = std::mem::take(&mut self.scopes);
        self.limited = Some(LimitedGrant { scopes, limits });
    }

    /// Whether the secret belongs to this record and the token has not expired.
    pub(crate) fn admits(&self, secret: &str, now: Timestamp) -> bool {
        // Comparing all bytes of the hashes takes constant time, so the time reveals nothing about the secret.
        let presented = hash(secret);
        let pairs = presented.as_bytes().iter().zip(self.sha256.as_bytes());
        let differs = pairs.fold(0, |differs, (a, b)| differs | (a ^ b));
        std::hint::black_box(differs) == 0 && self.expires_at.is_none_or(|until| now < until)
    }
}

/// Whether a text is the public part of a token.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 16
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The public and the secret part of a token.
pub(crate) fn split(token: &str) -> Result<(&str, &str), InvalidToken> {
    let (id, secret) = token
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split_once('_'))
        .ok_or(InvalidToken)?;
    if id.len() == 16 && (1..=64).contains(&secret.len()) {
        Ok((id, secret))
    } else {
        Err(InvalidToken)
    }
}

fn hash(secret: &str) -> Sha256 {
    let digest = digest::digest(&digest::SHA256, secret.as_bytes());
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    Sha256::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use qo_store::runtime::TokioRuntime;

    use super::*;

    fn drawn(expires_at: Option<Timestamp>) -> NewToken {
        let runtime = TokioRuntime::shared();
        let name = "ci".parse().unwrap();
        NewToken::draw(&*runtime, name, [Scope::Read], Timestamp::MIN, expires_at)
    }

    #[test]
    fn a_token_matches_only_its_own_record() {
        let (one, other) = (drawn(None), drawn(None));
        let (id, secret) = split(one.reveal()).unwrap();
        assert_eq!(id, one.record.id);
        assert!(one.record.admits(secret, Timestamp::MAX));
        assert!(!other.record.admits(secret, Timestamp::MIN));
        assert!(!one.record.admits("", Timestamp::MIN));
        assert!(!one.record.admits(&secret[1..], Timestamp::MIN));
    }

    #[test]
    fn a_token_expires() {
        let token = drawn(Some(Timestamp::from_millis(1_000)));
        let (_, secret) = split(token.reveal()).unwrap();
        assert!(token.record.admits(secret, Timestamp::from_millis(999)));
        assert!(!token.record.admits(secret, Timestamp::from_millis(1_000)));
    }

    #[test]
    fn neither_the_record_nor_a_log_shows_the_secret() {
        let token = drawn(None);
        let (_, secret) = split(token.reveal()).unwrap();
        assert!(secret.len() >= 43, "256 bits");
        assert!(
            !serde_json::to_string(&token.record)
                .unwrap()
                .contains(secret)
        );
        assert!(!format!("{token:?}").contains(secret));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let long = format!("qo_0123456789abcdef_{}", "x".repeat(65));
        for bad in [
            "",
            "qo_",
            "qo__",
            "xx_0123456789abcdef_s",
            "qo_0123_s",
            "qo_0123456789abcdef_",
            &long,
        ] {
            assert_eq!(split(bad), Err(InvalidToken), "{bad}");
        }
    }

    #[test]
    fn a_limited_token_grants_nothing_to_a_server_without_limits() {
        let mut limits = TokenLimits::default();
        let plain = drawn(None).limited(limits.clone()).record;
        assert_eq!((plain.limited.as_ref(), plain.scopes.len()), (None, 1));
        limits.queues.insert("mail".parse().unwrap());
        let record = drawn(None).limited(limits.clone()).record;
        assert!(record.scopes.is_empty() && record.granted().contains(&Scope::Read));
        let text = serde_json::to_string(&record).unwrap();
        let again: TokenRecord = serde_json::from_str(&text).unwrap();
        assert_eq!((again.limits(), &again), (limits, &record));
    }

    #[test]
    fn scopes_round_trip() {
        for scope in Scope::ALL {
            assert_eq!(scope.as_str().parse(), Ok(scope));
        }
        assert!("root".parse::<Scope>().is_err());
    }
}
