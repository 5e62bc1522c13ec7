//! Schedules: when they submit tasks, and what they decide.
//!
//! - [`ScheduleSpec`]: what a user defines: the times, the task, the policies.
//! - [`Ticks`]: the times of a schedule, with time zones and daylight saving.
//! - [`Schedule`]: the stored record: the definition and what has been decided so far.
//! - [`decide`]: which runs are due, and what an overlap leads to.
//!
//! # One task per tick
//!
//! A tick is one time of a schedule. The id of its task follows from the name of the schedule, its generation (a random id of its
//! creation) and the tick, so two processes that fire the same tick submit the same task. That is not enough where finished tasks are
//! dropped: a process that comes late would submit a dropped task again. So the record also says up to which time all ticks are decided
//! (`through`), and a tick is fired only together with a change of the record by compare-and-swap:
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | read the record; the ticks after `through` that are due are to be decided | nothing |
//! | 2 | cancel what runs, if the policy says so | a cancelled task; the next process decides the same ticks and cancels nothing more |
//! | 3 | swap the record: `through` is the last tick, and `firing` names the runs: **the ticks are decided** | a record with `firing`; after half a minute the next process submits these tasks again, under the same ids |
//! | 4 | submit the tasks | the same; the submits find the tasks |
//! | 5 | swap the record: `firing` is empty | nothing |
//!
//! Engines with a commit loop do steps 3 to 5 in one commit.

pub mod decide;
mod record;
mod spec;
mod ticks;

pub use decide::{Due, Firing};
pub use record::{Run, RunKind, SCHEDULE_READER, Schedule};
pub use spec::{InvalidSchedule, Overlap, ScheduleSpec, TaskTemplate};
pub use ticks::Ticks;
