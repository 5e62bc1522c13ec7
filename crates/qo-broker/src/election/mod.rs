//! Leader election among brokers: one object, changed by compare-and-swap.
//!
//! The journal of a broker has one writer, and fences out an older one by itself. The election decides *when* a standby takes over,
//! and which requests a suspended old leader may still answer. Neither depends on clocks that agree, only on clocks that run at
//! about the same speed.
//!
//! # The protocol
//!
//! `meta/broker.json` names the leader, its address and its epoch. A standby pings the leader's address, which costs no store
//! request. If for a while it gets no response, or only the response that the leader is not confirmed (see below), it writes a
//! **challenge** into the object. A leader reads the object every second (a conditional GET) and answers a challenge by removing it. A
//! challenge that is not removed within [`ElectionConfig::answer_time`] shows that the leader is dead, suspended, or cut off from the
//! store. The standby then replaces the leader, on the condition that the object has not changed since its challenge.
//!
//! | failure | effect |
//! | --- | --- |
//! | the leader dies or is suspended, at any time | the standby's challenge stays; the standby takes over |
//! | the standby dies before its challenge is stored | none |
//! | the standby dies after its challenge is stored | the leader removes the challenge; without a leader, another standby overwrites it with its own challenge and waits from then on |
//! | the new leader dies after it took over and before it serves | it is a leader that does not answer: as above |
//! | a write of any of them arrives late | its condition fails, because every write changes the object |
//! | the leader is alive but cut off from the store | it responds to pings that it is not confirmed; the standby's challenge stays; the standby takes over |
//! | the leader is alive but the standby cannot reach it | the leader answers each challenge; the standby doubles its pause between challenges |
//! | the leader has no address, because it serves only itself | the standby challenges it at once, and again after a doubling pause of at most one heartbeat interval |
//! | one response of the store to the leader is late | the leader's next read starts without waiting for it |
//!
//! # Which requests an old leader may answer
//!
//! A leader is *confirmed* by a read or a write of the object that began at `t` and found no challenge. A challenge that the read did
//! not see was stored after `t`, and stays for `answer_time` before a standby takes over. So no other process leads before
//! `t + answer_time`. The leader subtracts a tenth for clocks that run at different speeds. After that time it answers no request
//! until it is confirmed again ([`Leadership::confirm`]). A leader that was suspended for a minute therefore first reads the object,
//! finds another leader, and stands down. To pings, a leader counts as confirmed only if it also wrote a heartbeat lately: a leader that
//! reads the store but cannot write to it is replaced too.
//!
//! Processes may have different settings: a leader writes its own answer time into the record, and a challenger waits for the longer
//! of that and its own.
//!
//! # Requests
//!
//! A leader sends one GET per second, with the response 304, and one PUT per [`ElectionConfig::heartbeat_interval`]. A standby
//! sends one GET per [`ElectionConfig::record_interval`]. The guide to brokers has the price of both.

mod candidate;
mod elector;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod leader_gate;
mod leadership;
mod record;

use std::collections::BTreeMap;
use std::time::Duration;

pub use candidate::{Candidate, OpenEngine};
pub use elector::{Elector, LeaderPing};
pub use leader_gate::LeaderGate;
pub use leadership::Leadership;
pub use record::{BrokerRecord, Holder};

use qo_engine::environment::{ConfigError, number};
use qo_store::StoreError;
use thiserror::Error;

/// Intervals and timeouts of the election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectionConfig {
    /// How often a leader reads the object.
    pub check_interval: Duration,
    /// How long a leader has to answer a challenge.
    pub answer_time: Duration,
    /// How often a leader writes a heartbeat. It shows operators, and the leader itself, that it can write to the store.
    pub heartbeat_interval: Duration,
    /// How often a standby pings the leader.
    pub ping_interval: Duration,
    /// How long the leader may leave pings unanswered before a challenge.
    pub ping_timeout: Duration,
    /// How often a standby reads the record while the leader responds to pings.
    pub record_interval: Duration,
    /// The longest pause between two challenges that the leader answered.
    pub challenge_pause_max: Duration,
}

/// The default answer time.
const ANSWER_TIME_DEFAULT_MS: u64 = 2_500;
/// The range of valid answer times.
const ANSWER_TIME_MIN_MS: u64 = 250;
const ANSWER_TIME_MAX_MS: u64 = 10 * 60 * 1_000;

impl Default for ElectionConfig {
    fn default() -> Self {
        Self::with_answer_time(Duration::from_millis(ANSWER_TIME_DEFAULT_MS))
    }
}

impl ElectionConfig {
    /// Settings derived from an answer time: a leader reads the record more than twice in that time, and a takeover takes about one
    /// and a half times as long.
    pub fn with_answer_time(answer_time: Duration) -> Self {
        Self {
            check_interval: answer_time * 2 / 5,
            answer_time,
            heartbeat_interval: Duration::from_secs(15),
            ping_interval: answer_time * 12 / 100,
            ping_timeout: answer_time * 36 / 100,
            record_interval: Duration::from_secs(10),
            challenge_pause_max: Duration::from_mins(1),
        }
    }
}

impl ElectionConfig {
    /// The defaults, with the answer time from `QO_BROKER_ANSWER_MS`.
    pub fn from_env(vars: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let answer_ms = number(
            vars,
            "QO_BROKER_ANSWER_MS",
            ANSWER_TIME_MIN_MS,
            ANSWER_TIME_MAX_MS,
        )?;
        Ok(match answer_ms {
            None => Self::default(),
            Some(answer_ms) => Self::with_answer_time(Duration::from_millis(answer_ms)),
        })
    }
}

/// After how many missed heartbeats a leader does not count as alive.
const HEARTBEATS_MISSED: u32 = 3;

impl ElectionConfig {
    /// How old the last heartbeat of a leader may be before the leader does not count as alive.
    pub fn heartbeat_timeout(&self) -> Duration {
        self.heartbeat_interval * HEARTBEATS_MISSED
    }
}

/// Why this process does not lead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// Another process leads now.
    #[error("this broker no longer leads: epoch {epoch}, leader {holder}, address {address}")]
    Lost {
        /// The newer epoch.
        epoch: u64,
        /// The id of its leader.
        holder: String,
        /// The address of its leader.
        address: String,
    },
    /// This broker could not check in time whether it still leads.
    #[error(
        "cannot check whether this broker still leads, because the store does not respond; try again"
    )]
    Unconfirmed,
    /// The leadership was released.
    #[error("this broker has released its leadership because it is stopping; use another broker")]
    Released,
    /// The stored record cannot be read.
    #[error(
        "cannot read the leader record {key}: {detail}; inspect it, and delete it if no broker is running"
    )]
    Unreadable {
        /// The key of the object.
        key: &'static str,
        /// What is wrong with the object.
        detail: String,
    },
    /// A store request failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
