//! The tokens of a store: one small object, changed by compare-and-swap.
//!
//! Each change is one conditional write, so that a crash leaves either the old tokens or the new ones. A write whose answer was
//! lost is recognised by its operation id.

use std::time::Duration;

use qo_core::extra::Extra;
use qo_core::names::InvalidLabel;
use qo_core::{OpId, Tag};
use qo_store::client::{Object, Tag as ObjectTag};
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::{StoreClient, StoreError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thiserror::Error;

use super::record::{NewToken, Scope, TokenRecord};

/// Where the tokens are.
const KEY: &str = "meta/tokens.json";
/// How many tokens there can be.
const TOKENS_MAX: usize = 1_000;
/// How often a change is tried against others who change the same object.
const TRIES_MAX: u32 = 16;

/// Why the tokens could not be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TokenError {
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is stored is no list of tokens.
    #[error(
        "meta/tokens.json cannot be read: {0}; nobody is let in until it is put right or removed"
    )]
    Unreadable(String),
    /// There are too many.
    #[error("there are already {TOKENS_MAX} tokens; revoke some first")]
    TooMany,
    /// A token without scopes opens nothing.
    #[error("a token needs at least one scope: submit, work, read or admin")]
    NoScopes,
    /// The name is none.
    #[error(transparent)]
    Name(#[from] InvalidLabel),
    /// There is no such token.
    #[error("there is no token {id}; `list` shows those that there are")]
    NotFound {
        /// The id that was asked for.
        id: String,
    },
}

/// The stored object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Stored {
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
impl Stored {
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

/// What was read last, to ask whether it has changed.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    tag: Option<ObjectTag>,
    pub(crate) records: Vec<TokenRecord>,
}

impl TokenStore {
    /// The tokens of the store that this client reads and writes.
    pub fn new(client: StoreClient, runtime: Arc<dyn Runtime>) -> Self {
        Self { client, runtime }
    }

    /// Makes a token. Its text is in the answer, and nowhere else.
    pub async fn create(
        &self,
        name: &str,
        scopes: &[Scope],
        valid_for: Option<Duration>,
    ) -> Result<NewToken, TokenError> {
        if scopes.is_empty() {
            return Err(TokenError::NoScopes);
        }
        let name = Tag::new(name)?;
        let now = self.client.now();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let expires_at = valid_for.map(|time| now.plus_millis(millis(time)));
        let token = NewToken::draw(
            &*self.runtime,
            name,
            scopes.iter().copied(),
            now,
            expires_at,
        );
        self.change(|tokens| {
            if tokens.len() >= TOKENS_MAX {
                return Err(TokenError::TooMany);
            }
            tokens.push(token.record.clone());
            Ok(())
        })
        .await?;
        Ok(token)
    }

    /// The tokens that there are, without their secrets.
    pub async fn list(&self) -> Result<Vec<TokenRecord>, TokenError> {
        Ok(self.load().await?.0.tokens)
    }

    /// Makes a token worthless. Servers notice within seconds.
    pub async fn revoke(&self, id: &str) -> Result<TokenRecord, TokenError> {
        self.change(|tokens| {
            let place = tokens.iter().position(|token| token.id == id);
            place
                .map(|place| tokens.remove(place))
                .ok_or_else(|| TokenError::NotFound {
                    id: id.chars().take(64).collect(),
                })
        })
        .await
    }

    /// The tokens, read only if they have changed.
    pub(crate) async fn look(&self, seen: Option<Seen>) -> Result<Seen, TokenError> {
        if let Some(seen) = seen {
            return match &seen.tag {
                None => self.read().await,
                Some(tag) => match self.client.get_if_changed(KEY, tag).await {
                    Ok(None) => Ok(seen),
                    Ok(Some(object)) => Ok(Seen {
                        records: parse(&object)?.tokens,
                        tag: Some(object.tag),
                    }),
                    Err(StoreError::NotFound { .. }) => Ok(Seen {
                        tag: None,
                        records: Vec::new(),
                    }),
                    Err(error) => Err(error.into()),
                },
            };
        }
        self.read().await
    }

    async fn read(&self) -> Result<Seen, TokenError> {
        let (tokens, tag) = self.load().await?;
        Ok(Seen {
            tag,
            records: tokens.tokens,
        })
    }

    async fn load(&self) -> Result<(Stored, Option<ObjectTag>), TokenError> {
        match self.client.get(KEY).await {
            Ok(object) => Ok((parse(&object)?, Some(object.tag))),
            Err(StoreError::NotFound { .. }) => Ok((Stored::default(), None)),
            Err(error) => Err(error.into()),
        }
    }

    async fn change<T>(
        &self,
        mut change: impl FnMut(&mut Vec<TokenRecord>) -> Result<T, TokenError>,
    ) -> Result<T, TokenError> {
        let mut tries = 0;
        loop {
            let (mut tokens, tag) = self.load().await?;
            let changed = change(&mut tokens.tokens)?;
            let op = self.runtime.new_op_id();
            tokens.op_id = Some(op);
            tokens.revision = tokens.revision.saturating_add(1);
            let body = serde_json::to_vec_pretty(&tokens)
                .map_err(|error| TokenError::Unreadable(error.to_string()))?;
            let written = match &tag {
                None => self.client.create(KEY, body.into(), &op).await,
                Some(tag) => self.client.swap(KEY, body.into(), tag, &op).await,
            };
            tries += 1;
            match written {
                Ok(_) => return Ok(changed),
                Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. })
                    if tries < TRIES_MAX =>
                {
                    let pause_ms = 10 + self.runtime.random_below(50);
                    self.runtime.sleep(Duration::from_millis(pause_ms)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn parse(object: &Object) -> Result<Stored, TokenError> {
    serde_json::from_slice(&object.body).map_err(|error| TokenError::Unreadable(error.to_string()))
}
