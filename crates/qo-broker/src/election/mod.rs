//! Which of several brokers leads: one object, changed by compare-and-swap.
//!
//! The journal of a broker has one writer, and fences out an older one by itself. What is decided here is *when* somebody takes
//! over, and what an old leader that was only asleep may still answer. Neither rests on clocks that agree: only on clocks that run
//! about equally fast.
//!
//! # The protocol
//!
//! `meta/broker.json` names the leader, its address and its epoch. A standby asks the leader's address whether it is alive, which costs
//! nothing. If there is no answer for a while, it writes a **challenge** into the object. A leader reads the object every second
//! (a conditional GET) and answers a challenge by removing it. A challenge that stands for [`ElectionConfig::answer_time`]
//! shows that the leader is dead, asleep, or cut off from the store, so the standby replaces it, under the condition that the
//! object still is the one with its challenge.
//!
//! | who dies or sleeps, and when | what happens |
//! | --- | --- |
//! | the leader, at any time | the standby's challenge stands; it takes over |
//! | the standby, before its challenge is stored | nothing has changed |
//! | the standby, after its challenge is stored | the leader removes it; if there is none, another standby writes its own challenge over it and waits from then on |
//! | the new leader, after it took over and before it serves | it is a leader that does not answer: as above |
//! | a write of any of them arrives late | it fails its condition, because every write changes the object |
//! | the leader is alive and the standby cannot reach it | each challenge is answered; the standby doubles its pause between challenges |
//!
//! # What an old leader may answer
//!
//! A leader is *confirmed* by a read or a write of the object that began at `t` and found no challenge. A challenge that the read did not see
//! was stored after `t`, and stands for `answer_time` before anybody takes over. So until `t + answer_time`, nobody else leads. The leader
//! takes a tenth off for clocks that run unequally, and answers nothing outside of that time before it was confirmed again
//! ([`Leadership::confirm`]). A leader that was stopped for a minute therefore asks first, finds another name, and stands down.
//!
//! Processes may be set up differently: a leader writes into the record how long it takes itself to answer, and a challenger waits for the
//! longer one of that and its own time.
//!
//! # Requests
//!
//! A leader sends one GET a second, answered 304, and one PUT each [`ElectionConfig::heartbeat_interval`]: at S3's prices about $1.05 and
//! $0.88 a month. A standby sends one GET per [`ElectionConfig::look_interval`], $0.11.

mod elector;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod leader_gate;
mod leadership;
mod record;

use std::collections::BTreeMap;
use std::time::Duration;

pub use elector::{Elector, IsAlive};
pub use leader_gate::LeaderGate;
pub use leadership::Leadership;
pub use record::{BrokerRecord, Holder};

use qo_engine::environment::{ConfigError, number};
use qo_store::StoreError;
use thiserror::Error;

/// How fast who looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionConfig {
    /// How often a leader reads the object.
    pub check_interval: Duration,
    /// How long a leader has to answer a challenge.
    pub answer_time: Duration,
    /// How often a leader writes that it is there, for people to see and for leaders that have no address.
    pub heartbeat_interval: Duration,
    /// How often a standby asks the leader's address.
    pub ping_interval: Duration,
    /// For how long that goes unanswered before a challenge.
    pub ping_patience: Duration,
    /// How often a standby reads the object although the leader answers.
    pub look_interval: Duration,
    /// The longest pause between two challenges that were answered.
    pub challenge_pause_max: Duration,
}

/// How long a leader has to answer a challenge, if nothing else is said.
const ANSWER_TIME_DEFAULT_MS: u64 = 2_500;
/// The least and the most that can be said.
const ANSWER_TIME_MIN_MS: u64 = 250;
const ANSWER_TIME_MAX_MS: u64 = 10 * 60 * 1_000;

impl Default for ElectionConfig {
    fn default() -> Self {
        Self::with_answer_time(Duration::from_millis(ANSWER_TIME_DEFAULT_MS))
    }
}

impl ElectionConfig {
    /// The defaults around another time to answer: a leader looks more than twice in that time, and a takeover takes it about one and a half
    /// times.
    pub fn with_answer_time(answer_time: Duration) -> Self {
        Self {
            check_interval: answer_time * 2 / 5,
            answer_time,
            heartbeat_interval: Duration::from_secs(15),
            ping_interval: answer_time * 12 / 100,
            ping_patience: answer_time * 36 / 100,
            look_interval: Duration::from_secs(10),
            challenge_pause_max: Duration::from_mins(1),
        }
    }
}

impl ElectionConfig {
    /// The defaults with what `QO_BROKER_ANSWER_MS` says.
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

/// A leader without an address is doubted when it misses so many heartbeats.
const HEARTBEATS_MISSED: u32 = 3;

impl ElectionConfig {
    /// How old the heartbeat of a leader without an address may be before it is doubted.
    pub fn heartbeat_patience(&self) -> Duration {
        self.heartbeat_interval * HEARTBEATS_MISSED
    }
}

/// Why somebody does not lead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ElectionError {
    /// Somebody else leads now.
    #[error("this broker no longer leads: epoch {epoch} belongs to {holder}; ask it at {address}")]
    Lost {
        /// The newer epoch.
        epoch: u64,
        /// Who has it.
        holder: String,
        /// Where it is reached.
        address: String,
    },
    /// Whether this broker still leads could not be found out in time.
    #[error(
        "whether this broker still leads cannot be told, because the store does not answer; try again"
    )]
    Unconfirmed,
    /// The leadership was given up.
    #[error("this broker has given up its leadership, because it is stopping; ask another one")]
    Released,
    /// What is stored there cannot be read.
    #[error(
        "the record of who leads, {key}, cannot be read: {detail}; look at it, and delete it if no broker runs"
    )]
    Unreadable {
        /// The object.
        key: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}
