//! Checks the tokens of requests.
//!
//! When a request arrives and the last read of the store's tokens is older than a few seconds, they are read again. So an idle server
//! sends no store requests, and a revoked token stops working within that time. While the store cannot be read, the known tokens stay
//! valid: an outage must not lock out workers whose tokens were valid a moment ago.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qo_core::Timestamp;
use qo_store::runtime::Runtime;

use super::record::{Scope, TokenRecord, split};
use super::store::{TokenError, TokenSnapshot, TokenStore};

/// The maximum age of the tokens that were read from the store.
const FRESH_FOR: Duration = Duration::from_secs(5);

/// Where the tokens are.
#[derive(Debug, Clone)]
pub(crate) enum TokenSource {
    /// There are none, and none is needed.
    Open,
    /// In memory.
    Given(Vec<TokenRecord>),
    /// In a store. While it has none, either everyone or no one is allowed.
    Stored {
        store: TokenStore,
        open_while_empty: bool,
    },
}

/// The sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The public part of the token; empty if none is needed.
    pub(crate) token: String,
    pub(crate) scopes: BTreeSet<Scope>,
}

impl Caller {
    /// Whether the caller has one of these scopes. The scope `admin` includes all others.
    pub(crate) fn may(&self, any_of: &[Scope]) -> bool {
        self.scopes.contains(&Scope::Admin)
            || any_of.iter().any(|scope| self.scopes.contains(scope))
    }

    fn anonymous() -> Self {
        Self {
            token: String::new(),
            scopes: Scope::ALL.into(),
        }
    }
}

/// Why a request is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// The token is missing or invalid.
    InvalidToken(&'static str),
    /// The tokens cannot be read.
    Unreadable(String),
}

#[derive(Debug)]
pub(crate) struct Guard {
    source: TokenSource,
    runtime: Arc<dyn Runtime>,
    cache: Mutex<TokenCache>,
    /// Allows one refresh at a time.
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct TokenCache {
    records: Arc<BTreeMap<String, TokenRecord>>,
    snapshot: Option<TokenSnapshot>,
    refreshed_at: Option<Duration>,
    /// Whether there has ever been a token. Then every request needs one, even after the last token was revoked.
    had_tokens: bool,
}

impl Guard {
    pub(crate) fn new(source: TokenSource, runtime: Arc<dyn Runtime>) -> Self {
        let records = match &source {
            TokenSource::Given(records) => by_id(records),
            TokenSource::Open | TokenSource::Stored { .. } => BTreeMap::new(),
        };
        Self {
            cache: Mutex::new(TokenCache {
                had_tokens: !records.is_empty(),
                records: Arc::new(records),
                ..TokenCache::default()
            }),
            source,
            runtime,
            refreshing: tokio::sync::Mutex::new(()),
        }
    }

    /// Whether requests need no token.
    pub(crate) fn is_open(&self) -> bool {
        match &self.source {
            TokenSource::Open => true,
            TokenSource::Given(_) => false,
            TokenSource::Stored {
                open_while_empty, ..
            } => *open_while_empty && !self.lock().had_tokens,
        }
    }

    /// Whether there has ever been a token.
    pub(crate) fn has_tokens(&self) -> bool {
        self.lock().had_tokens
    }

    /// Reads the tokens, so that a server that cannot read them fails before it serves.
    pub(crate) async fn start(&self) -> Result<(), TokenError> {
        self.refresh().await
    }

    /// Identifies the holder of a token.
    pub(crate) async fn identify(
        &self,
        token: Option<&str>,
        now: Timestamp,
    ) -> Result<Caller, AuthError> {
        if let Err(error) = self.refresh().await {
            if self.lock().refreshed_at.is_none() {
                return Err(AuthError::Unreadable(error.to_string()));
            }
            tracing::warn!(%error, "cannot read the tokens; the known ones stay valid");
        }
        if self.is_open() {
            return Ok(Caller::anonymous());
        }
        let Some(token) = token else {
            return Err(AuthError::InvalidToken(
                "send a token as `Authorization: Bearer qo_...`; `qo token create` creates one",
            ));
        };
        let invalid = AuthError::InvalidToken("the token is unknown, revoked or expired");
        let Ok((id, secret)) = split(token) else {
            return Err(invalid);
        };
        let records = Arc::clone(&self.lock().records);
        match records.get(id) {
            Some(record) if record.admits(secret, now) => Ok(Caller {
                token: record.id.clone(),
                scopes: record.scopes.clone(),
            }),
            _ => Err(invalid),
        }
    }

    async fn refresh(&self) -> Result<(), TokenError> {
        let TokenSource::Stored { store, .. } = &self.source else {
            return Ok(());
        };
        if self.is_fresh() {
            return Ok(());
        }
        let _one_at_a_time = self.refreshing.lock().await;
        if self.is_fresh() {
            return Ok(());
        }
        let snapshot = self.lock().snapshot.clone();
        let refreshed = store.refresh(snapshot).await;
        let mut cache = self.lock();
        // A failed refresh counts too, so that during an outage not every request sends a store request.
        if cache.refreshed_at.is_some() || refreshed.is_ok() {
            cache.refreshed_at = Some(self.runtime.monotonic());
        }
        let snapshot = refreshed?;
        cache.had_tokens |= !snapshot.records.is_empty();
        cache.records = Arc::new(by_id(&snapshot.records));
        cache.snapshot = Some(snapshot);
        Ok(())
    }

    fn is_fresh(&self) -> bool {
        let refreshed_at = self.lock().refreshed_at;
        refreshed_at.is_some_and(|then| self.runtime.monotonic().saturating_sub(then) < FRESH_FOR)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, TokenCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn by_id(records: &[TokenRecord]) -> BTreeMap<String, TokenRecord> {
    let pairs = records
        .iter()
        .map(|record| (record.id.clone(), record.clone()));
    pairs.collect()
}
