//! The tokens of a store: one small object, changed by compare-and-swap.
//!
//! Each change is one conditional write, so a crash leaves either the old tokens or the new ones. A write whose response was lost is
//! recognised by its operation id.
//!
//! The object is created with the first token and stays when the last one is revoked. Its presence is how every server knows, also
//! after a restart, that requests need a token.

use std::time::Duration;

use qo_core::extra::Extra;
use qo_core::names::InvalidLabel;
use qo_core::{OpId, Sha256, Tag};
use qo_store::client::{Object, Tag as ObjectTag};
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::{StoreClient, StoreError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thiserror::Error;

use super::limits::TokenLimits;
use super::record::{NewToken, Scope, TokenRecord, is_id};

/// The key of the object.
const KEY: &str = "meta/tokens.json";
/// The most tokens in a store.
const TOKENS_MAX: usize = 1_000;
/// The most attempts of a change while other processes change the same object.
const ATTEMPTS_MAX: u32 = 16;

/// Why the tokens could not be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// A store request failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stored object cannot be read.
    #[error(
        "cannot read meta/tokens.json: {0}; all requests are rejected until it is repaired, or replaced by `{{}}`"
    )]
    Unreadable(String),
    /// There are too many tokens.
    #[error("there are already {TOKENS_MAX} tokens; revoke some first")]
    TooMany,
    /// The token has no scopes.
    #[error("a token needs at least one scope: submit, work, read or admin")]
    NoScopes,
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] InvalidLabel),
    /// The id is not one of a token.
    #[error("the id of a token has 16 hexadecimal digits in lower case")]
    BadId,
    /// Another token has this id.
    #[error("another token has this id; create the token again")]
    IdTaken,
    /// There is no such token.
    #[error("token {id} does not exist; `qo token list` shows all tokens")]
    NotFound {
        /// The requested id.
        id: String,
    },
}

/// Whether tokens were changed.
enum Change<T> {
    Write(T),
    None(T),
}

/// The stored object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredTokens {
    #[serde(default)]
    tokens: Vec<TokenRecord>,
    #[serde(default)]
    revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    op_id: Option<OpId>,
    #[serde(flatten)]
    extra: Extra,
}

#[cfg(feature = "fuzzing")]
impl StoredTokens {
    pub(super) fn into_records(self) -> Vec<TokenRecord> {
        self.tokens
    }
}

/// The tokens of a store.
#[derive(Debug, Clone)]
pub struct TokenStore {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
}

/// The tokens as last read, and the tag to check whether they have changed.
#[derive(Debug, Clone)]
pub(crate) struct TokenSnapshot {
    tag: Option<ObjectTag>,
    pub(crate) records: Vec<TokenRecord>,
}

impl TokenSnapshot {
    /// Whether a token was ever created. The object stays when its last token is revoked.
    pub(crate) fn had_tokens(&self) -> bool {
        self.tag.is_some()
    }
}

impl TokenStore {
    /// The tokens in the store of this client.
    pub fn new(client: StoreClient, runtime: Arc<dyn Runtime>) -> Self {
        Self { client, runtime }
    }

    /// Creates a token. Its text is only in the result.
    pub async fn create(
        &self,
        name: &str,
        scopes: &[Scope],
        valid_for: Option<Duration>,
    ) -> Result<NewToken, TokenError> {
        self.create_limited(name, scopes, TokenLimits::default(), valid_for)
            .await
    }

    /// Creates a token that is limited to queues and types.
    pub async fn create_limited(
        &self,
        name: &str,
        scopes: &[Scope],
        limits: TokenLimits,
        valid_for: Option<Duration>,
    ) -> Result<NewToken, TokenError> {
        if scopes.is_empty() {
            return Err(TokenError::NoScopes);
        }
        let name = Tag::new(name)?;
        let now = self.client.now();
        let expires_at = valid_for.map(|time| now.plus_millis(millis(time)));
        let token = NewToken::draw(
            &*self.runtime,
            name,
            scopes.iter().copied(),
            now,
            expires_at,
        )
        .limited(limits);
        self.change(|tokens| {
            if tokens.len() >= TOKENS_MAX {
                return Err(TokenError::TooMany);
            }
            tokens.push(token.record.clone());
            Ok(Change::Write(()))
        })
        .await?;
        Ok(token)
    }

    /// Stores a token by the hash of its secret. If it is already stored, nothing changes: the request was repeated.
    pub async fn register(
        &self,
        id: &str,
        name: &str,
        scopes: &[Scope],
        limits: TokenLimits,
        sha256: Sha256,
        valid_for: Option<Duration>,
    ) -> Result<(), TokenError> {
        if !is_id(id) {
            return Err(TokenError::BadId);
        }
        if scopes.is_empty() {
            return Err(TokenError::NoScopes);
        }
        let now = self.client.now();
        let mut record = TokenRecord {
            id: id.to_owned(),
            name: Tag::new(name)?,
            scopes: scopes.iter().copied().collect(),
            limited: None,
            sha256,
            created_at: now,
            expires_at: valid_for.map(|time| now.plus_millis(millis(time))),
            extra: Extra::default(),
        };
        record.limit(limits);
        self.change(|tokens| {
            match tokens.iter().find(|token| token.id == record.id) {
                Some(known) if known.sha256 == record.sha256 => return Ok(Change::None(())),
                Some(_) => return Err(TokenError::IdTaken),
                None => {}
            }
            if tokens.len() >= TOKENS_MAX {
                return Err(TokenError::TooMany);
            }
            tokens.push(record.clone());
            Ok(Change::Write(()))
        })
        .await
    }

    /// All tokens, without their secrets.
    pub async fn list(&self) -> Result<Vec<TokenRecord>, TokenError> {
        Ok(self.load().await?.0.tokens)
    }

    /// Revokes a token. Servers reject it within seconds.
    pub async fn revoke(&self, id: &str) -> Result<TokenRecord, TokenError> {
        self.change(|tokens| {
            let index = tokens.iter().position(|token| token.id == id);
            index
                .map(|index| Change::Write(tokens.remove(index)))
                .ok_or_else(|| TokenError::NotFound {
                    id: id.chars().take(64).collect(),
                })
        })
        .await
    }

    /// The current tokens. They are transferred only if they have changed.
    pub(crate) async fn refresh(
        &self,
        snapshot: Option<TokenSnapshot>,
    ) -> Result<TokenSnapshot, TokenError> {
        if let Some(snapshot) = snapshot {
            return match &snapshot.tag {
                None => self.read().await,
                Some(tag) => match self.client.get_if_changed(KEY, tag).await {
                    Ok(None) => Ok(snapshot),
                    Ok(Some(object)) => Ok(TokenSnapshot {
                        records: parse(&object)?.tokens,
                        tag: Some(object.tag),
                    }),
                    Err(StoreError::NotFound { .. }) => Ok(TokenSnapshot {
                        tag: None,
                        records: Vec::new(),
                    }),
                    Err(error) => Err(error.into()),
                },
            };
        }
        self.read().await
    }

    async fn read(&self) -> Result<TokenSnapshot, TokenError> {
        let (tokens, tag) = self.load().await?;
        Ok(TokenSnapshot {
            tag,
            records: tokens.tokens,
        })
    }

    async fn load(&self) -> Result<(StoredTokens, Option<ObjectTag>), TokenError> {
        match self.client.get(KEY).await {
            Ok(object) => Ok((parse(&object)?, Some(object.tag))),
            Err(StoreError::NotFound { .. }) => Ok((StoredTokens::default(), None)),
            Err(error) => Err(error.into()),
        }
    }

    async fn change<T>(
        &self,
        mut change: impl FnMut(&mut Vec<TokenRecord>) -> Result<Change<T>, TokenError>,
    ) -> Result<T, TokenError> {
        let mut attempts = 0;
        loop {
            let (mut tokens, tag) = self.load().await?;
            let changed = match change(&mut tokens.tokens)? {
                Change::None(unchanged) => return Ok(unchanged),
                Change::Write(changed) => changed,
            };
            let op = self.runtime.new_op_id();
            tokens.op_id = Some(op);
            tokens.revision = tokens.revision.saturating_add(1);
            let body = serde_json::to_vec_pretty(&tokens)
                .map_err(|error| TokenError::Unreadable(error.to_string()))?;
            let written = match &tag {
                None => self.client.create(KEY, body.into(), &op).await,
                Some(tag) => self.client.swap(KEY, body.into(), tag, &op).await,
            };
            attempts += 1;
            match written {
                Ok(_) => return Ok(changed),
                Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. })
                    if attempts < ATTEMPTS_MAX =>
                {
                    let pause_ms = 10 + self.runtime.random_below(50);
                    self.runtime.sleep(Duration::from_millis(pause_ms)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn parse(object: &Object) -> Result<StoredTokens, TokenError> {
    serde_json::from_slice(&object.body).map_err(|error| TokenError::Unreadable(error.to_string()))
}
