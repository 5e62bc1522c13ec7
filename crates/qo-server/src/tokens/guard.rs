//! What a server holds a request's token against.
//!
//! Tokens of a store are read again when a request comes and the last look is older than a few seconds, so that an idle server asks
//! nothing, and a revoked token stops working within that time. A store that cannot be read leaves what is known in force:
//! an outage must not lock workers out whose tokens were good a moment ago.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qo_core::Timestamp;
use qo_store::runtime::Runtime;

use super::record::{Scope, TokenRecord, split};
use super::store::{Seen, TokenError, TokenStore};

/// How old the last look at the store's tokens may be.
const FRESH_FOR: Duration = Duration::from_secs(5);

/// Where the tokens are.
#[derive(Debug, Clone)]
pub(crate) enum TokenSource {
    /// There are none, and nobody needs one.
    Open,
    /// In the program.
    Given(Vec<TokenRecord>),
    /// In a store. Without any in it, either everybody is let in or nobody.
    Stored {
        store: TokenStore,
        open_while_empty: bool,
    },
}

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The public part of the token; empty where none is needed.
    pub(crate) token: String,
    pub(crate) scopes: BTreeSet<Scope>,
}

impl Caller {
    /// Whether one of these scopes is held. Whoever administrates may do everything.
    pub(crate) fn may(&self, any_of: &[Scope]) -> bool {
        self.scopes.contains(&Scope::Admin)
            || any_of.iter().any(|scope| self.scopes.contains(scope))
    }

    fn everybody() -> Self {
        Self {
            token: String::new(),
            scopes: Scope::ALL.into(),
        }
    }
}

/// Why a request is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Barred {
    /// It has no token, or one that is good for nothing.
    Unknown(&'static str),
    /// The tokens cannot be read.
    Unreadable(String),
}

#[derive(Debug)]
pub(crate) struct Guard {
    source: TokenSource,
    runtime: Arc<dyn Runtime>,
    known: Mutex<Known>,
    /// One look at a time.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    records: Arc<BTreeMap<String, TokenRecord>>,
    seen: Option<Seen>,
    looked_at: Option<Duration>,
    /// Once there were tokens, everybody needs one, also after the last was revoked.
    had_tokens: bool,
}

impl Guard {
    pub(crate) fn new(source: TokenSource, runtime: Arc<dyn Runtime>) -> Self {
        let records = match &source {
            TokenSource::Given(records) => by_id(records),
            TokenSource::Open | TokenSource::Stored { .. } => BTreeMap::new(),
        };
        Self {
            known: Mutex::new(Known {
                had_tokens: !records.is_empty(),
                records: Arc::new(records),
                ..Known::default()
            }),
            source,
            runtime,
            looking: tokio::sync::Mutex::new(()),
        }
    }

    /// Whether requests come in without a token.
    pub(crate) fn is_open(&self) -> bool {
        match &self.source {
            TokenSource::Open => true,
            TokenSource::Given(_) => false,
            TokenSource::Stored {
                open_while_empty, ..
            } => *open_while_empty && !self.lock().had_tokens,
        }
    }

    /// Whether there is, or was, a token.
    pub(crate) fn has_tokens(&self) -> bool {
        self.lock().had_tokens
    }

    /// Reads the tokens, so that a server that cannot says so before it serves.
    pub(crate) async fn start(&self) -> Result<(), TokenError> {
        self.refresh().await
    }

    /// Who holds this token.
    pub(crate) async fn identify(
        &self,
        token: Option<&str>,
        now: Timestamp,
    ) -> Result<Caller, Barred> {
        if let Err(error) = self.refresh().await {
            if self.lock().looked_at.is_none() {
                return Err(Barred::Unreadable(error.to_string()));
            }
            tracing::warn!(%error, "the tokens cannot be read; those that are known stay in force");
        }
        if self.is_open() {
            return Ok(Caller::everybody());
        }
        let Some(token) = token else {
            return Err(Barred::Unknown(
                "send a token as `Authorization: Bearer qo_...`; `qo token create` makes one",
            ));
        };
        let unknown = Barred::Unknown("the token is unknown, revoked or out of date");
        let Ok((id, secret)) = split(token) else {
            return Err(unknown);
        };
        let records = Arc::clone(&self.lock().records);
        match records.get(id) {
            Some(record) if record.admits(secret, now) => Ok(Caller {
                token: record.id.clone(),
                scopes: record.scopes.clone(),
            }),
            _ => Err(unknown),
        }
    }

    async fn refresh(&self) -> Result<(), TokenError> {
        let TokenSource::Stored { store, .. } = &self.source else {
            return Ok(());
        };
        if self.is_fresh() {
            return Ok(());
        }
        let _one_at_a_time = self.looking.lock().await;
        if self.is_fresh() {
            return Ok(());
        }
        let seen = self.lock().seen.clone();
        let looked = store.look(seen).await;
        let mut known = self.lock();
        // A failed look counts too, so that an outage is not made worse by one more request per request.
        if known.looked_at.is_some() || looked.is_ok() {
            known.looked_at = Some(self.runtime.monotonic());
        }
        let seen = looked?;
        known.had_tokens |= !seen.records.is_empty();
        known.records = Arc::new(by_id(&seen.records));
        known.seen = Some(seen);
        Ok(())
    }

    fn is_fresh(&self) -> bool {
        let looked_at = self.lock().looked_at;
        looked_at.is_some_and(|then| self.runtime.monotonic().saturating_sub(then) < FRESH_FOR)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn by_id(records: &[TokenRecord]) -> BTreeMap<String, TokenRecord> {
    let pairs = records
        .iter()
        .map(|record| (record.id.clone(), record.clone()));
    pairs.collect()
}
