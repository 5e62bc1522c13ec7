//! Checks qo's promises over a recorded history.
//!
//! The simulator, the crash tests, the chaos runs and the tests of the command all record the requests and replies of their callers.
//! This crate has one set of checks for all of them. It does not depend on how a history was recorded.
//!
//! - [`Recorder`]: an engine that records its calls in a [`CallLog`]. [`Call`]: one of them.
//! - [`StoredVersion`], [`Life`]: every stored version of a task, and the changes that lead from one to the next.
//! - [`History::check`]: all checks of calls against stored versions, linearizability included.
//! - [`FinalState::check`]: the checks that need only the final tasks and their own event histories.
//! - [`cause`]: the one place that tells from an event why an attempt ended.

mod amendments;
mod attempts;
mod call;
mod call_log;
pub mod cause;
mod counts;
mod fairness;
mod final_state;
mod group;
mod history;
mod keys;
mod leftover;
mod life;
mod limits;
mod linearizability;
mod ordering;
mod promise;
mod recorder;
mod settings;
mod webhooks;

pub use attempts::Excuse;
pub use call::{Asked, Call, CallKind, CallerId, Reply, TaskView, reply_to};
pub use call_log::{CallClock, CallLog, OpenCall};
pub use fairness::{TURNS, TurnBound};
pub use final_state::{
    AttemptSpan, ClientLog, CompletedAttempt, FinalState, StartedAttempt, Submission, attempt_spans,
};
pub use history::{Checked, History};
pub use leftover::{direct_versions, left_over_keys};
pub use life::{Attempt, Change, Conditions, Life, Step, StoredVersion, lives};
pub use promise::{Breaches, Promise};
pub use recorder::Recorder;
pub use webhooks::check_deliveries;
