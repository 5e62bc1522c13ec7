//! Checks the tokens of requests.
//!
//! When a request arrives and the last read of the store's tokens is older than a few seconds, they are read again. So an idle server
//! sends no store requests, and a revoked token stops working within that time. The read runs in the background, and a request waits
//! for it only for a moment: while the store is slow or cannot be read, the known tokens stay valid. An outage must not lock out
//! workers whose tokens were valid a moment ago.
//!
//! Once a token was created, every request needs one, even after the last token was revoked, and even on a server that starts later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qo::SubmitRequest;
use qo_core::Timestamp;
use qo_core::webhook::delivery::is_delivery;
use qo_remote::wire::Condition;
use qo_store::runtime::Runtime;
use tokio::sync::watch;

use super::limits::TokenLimits;
use super::record::{Scope, TokenRecord, split};
use super::store::{TokenError, TokenSnapshot, TokenStore};
use crate::response::ApiError;

/// The maximum age of the tokens that were read from the store.
const FRESH_FOR: Duration = Duration::from_secs(5);
/// How long a read of the tokens delays requests. Those that arrive later do not wait for it at all.
const READ_WAIT: Duration = Duration::from_secs(1);

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
        /// Tokens that are valid besides. They do not close a server that is open.
        besides: Vec<TokenRecord>,
    },
}

/// The sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The public part of the token; empty if none is needed.
    pub(crate) token: String,
    /// The name of the token; empty if none is needed.
    pub(crate) name: String,
    pub(crate) scopes: BTreeSet<Scope>,
    /// To which queues and types it is limited.
    pub(crate) limits: TokenLimits,
}

impl Caller {
    /// Whether the caller has one of these scopes. The scope `admin` includes all others.
    pub(crate) fn may(&self, any_of: &[Scope]) -> bool {
        self.scopes.contains(&Scope::Admin)
            || any_of.iter().any(|scope| self.scopes.contains(scope))
    }

    /// Checks a submit. A delivery would be signed with the secret of its webhook, so only operators may make one up.
    pub(crate) fn check_submit(&self, request: &SubmitRequest) -> Result<(), ApiError> {
        if is_delivery(&request.task_type) && !self.may(&[]) {
            let reason = format!(
                "tasks of type {} notify webhooks; submitting one needs the scope admin",
                request.task_type
            );
            return Err(ApiError::new(Condition::Forbidden, reason));
        }
        self.limits.check_submit(request)
    }

    fn of(record: &TokenRecord) -> Self {
        Self {
            token: record.id.clone(),
            name: record.name.to_string(),
            scopes: record.granted().clone(),
            limits: record.limits(),
        }
    }

    fn anonymous() -> Self {
        Self {
            token: String::new(),
            name: String::new(),
            scopes: Scope::ALL.into(),
            limits: TokenLimits::default(),
        }
    }
}

/// Why a request is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// The token is missing or invalid.
    InvalidToken(&'static str),
}

#[derive(Debug, Clone)]
pub(crate) struct Guard(Arc<GuardState>);

#[derive(Debug)]
struct GuardState {
    source: TokenSource,
    runtime: Arc<dyn Runtime>,
    cache: Mutex<TokenCache>,
    /// Counts the reads that have ended, for the requests that wait for one.
    reads: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct TokenCache {
    records: Arc<BTreeMap<String, TokenRecord>>,
    snapshot: Option<TokenSnapshot>,
    refreshed_at: Option<Duration>,
    /// When the read under way began.
    reading_since: Option<Duration>,
    /// Whether there has ever been a token. Then every request needs one, even after the last token was revoked.
    had_tokens: bool,
}

impl Guard {
    pub(crate) fn new(source: TokenSource, runtime: Arc<dyn Runtime>) -> Self {
        let records = match &source {
            TokenSource::Given(records) => by_id(records),
            TokenSource::Stored { besides, .. } => by_id(besides),
            TokenSource::Open => BTreeMap::new(),
        };
        let had_tokens = matches!(source, TokenSource::Given(_)) && !records.is_empty();
        Self(Arc::new(GuardState {
            cache: Mutex::new(TokenCache {
                had_tokens,
                records: Arc::new(records),
                ..TokenCache::default()
            }),
            source,
            runtime,
            reads: watch::Sender::new(0),
        }))
    }

    /// Whether requests need no token.
    pub(crate) fn is_open(&self) -> bool {
        match &self.0.source {
            TokenSource::Open => true,
            TokenSource::Given(_) => false,
            TokenSource::Stored {
                open_while_empty, ..
            } => *open_while_empty && !self.0.lock().had_tokens,
        }
    }

    /// Whether there has ever been a token.
    pub(crate) fn has_tokens(&self) -> bool {
        let besides = match &self.0.source {
            TokenSource::Stored { besides, .. } => besides.as_slice(),
            _ => &[],
        };
        !besides.is_empty() || self.0.lock().had_tokens
    }

    /// The stored tokens, if there are any.
    pub(crate) fn store(&self) -> Option<&TokenStore> {
        match &self.0.source {
            TokenSource::Stored { store, .. } => Some(store),
            TokenSource::Open | TokenSource::Given(_) => None,
        }
    }

    /// Lets the next request read the tokens again, because they have changed.
    pub(crate) fn forget(&self) {
        self.0.lock().refreshed_at = None;
    }

    /// Reads the tokens, so that a server that cannot read them fails before it serves.
    pub(crate) async fn start(&self) -> Result<(), TokenError> {
        self.0.read().await
    }

    /// Identifies the holder of a token.
    pub(crate) async fn identify(
        &self,
        token: Option<&str>,
        now: Timestamp,
    ) -> Result<Caller, AuthError> {
        self.refresh().await;
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
        let records = Arc::clone(&self.0.lock().records);
        match records.get(id) {
            Some(record) if record.admits(secret, now) => Ok(Caller::of(record)),
            _ => Err(invalid),
        }
    }

    /// Waits until a caller may no longer do what one of these scopes allows, because its token was revoked, has expired, or is
    /// needed by now.
    pub(crate) async fn ended(
        &self,
        caller: &Caller,
        any_of: &[Scope],
        now: impl Fn() -> Timestamp,
    ) {
        loop {
            self.0.runtime.sleep(FRESH_FOR).await;
            self.refresh().await;
            let is_valid = if caller.token.is_empty() {
                self.is_open()
            } else {
                let records = Arc::clone(&self.0.lock().records);
                let record = records.get(&caller.token);
                record.is_some_and(|record| {
                    let current = Caller::of(record);
                    record.expires_at.is_none_or(|until| now() < until)
                        && current.may(any_of)
                        && current.limits == caller.limits
                })
            };
            if !is_valid {
                return;
            }
        }
    }

    /// Reads the tokens again if they are too old. Waits for the read only for a moment.
    async fn refresh(&self) {
        let mut reads = self.0.reads.subscribe();
        let ended = *reads.borrow_and_update();
        let Some(is_new) = self.0.begin_read() else {
            return;
        };
        if is_new {
            let state = Arc::clone(&self.0);
            self.0.runtime.spawn(Box::pin(async move {
                // A failure is logged there, and the known tokens stay valid.
                let _ = state.read().await;
            }));
        }
        tokio::select! {
            biased;
            // The sender is in `self`, so the wait cannot fail.
            _ = reads.wait_for(|count| *count != ended) => {}
            () = self.0.runtime.sleep(READ_WAIT) => {}
        }
    }
}

impl GuardState {
    /// `None` if no request needs to wait for a read of the tokens; otherwise whether the caller is to start one.
    fn begin_read(&self) -> Option<bool> {
        if !matches!(self.source, TokenSource::Stored { .. }) {
            return None;
        }
        let now = self.runtime.monotonic();
        let mut cache = self.lock();
        let age = |then: Duration| now.saturating_sub(then);
        if cache.refreshed_at.is_some_and(|then| age(then) < FRESH_FOR) {
            return None;
        }
        match cache.reading_since {
            Some(since) if age(since) < READ_WAIT => Some(false),
            Some(_) => None,
            None => {
                cache.reading_since = Some(now);
                Some(true)
            }
        }
    }

    async fn read(&self) -> Result<(), TokenError> {
        let TokenSource::Stored { store, besides, .. } = &self.source else {
            return Ok(());
        };
        let snapshot = self.lock().snapshot.clone();
        let refreshed = store.refresh(snapshot).await;
        {
            let mut cache = self.lock();
            cache.reading_since = None;
            // A failed read counts too, so that during an outage not every request sends a store request.
            cache.refreshed_at = Some(self.runtime.monotonic());
            if let Ok(snapshot) = &refreshed {
                cache.had_tokens |= snapshot.had_tokens();
                let mut records = by_id(&snapshot.records);
                records.extend(by_id(besides));
                cache.records = Arc::new(records);
                cache.snapshot = Some(snapshot.clone());
            }
        }
        self.reads.send_modify(|count| *count += 1);
        refreshed.map(|_| ()).inspect_err(|error| {
            tracing::warn!(%error, "cannot read the tokens; the known ones stay valid");
        })
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
