//! What a leader proposes to the cluster: an entry of the log.
//!
//! | field | size | content |
//! | --- | --- | --- |
//! | version | 1 | 1 |
//! | kind | 1 | 0 barrier, 1 group, 2 rows, 3 sweep |
//! | time | 8 | the leader's time, milliseconds since 1970 |
//! | epoch | 8 | the index of the barrier with which the leader took over; 0 in a barrier |
//! | group: number | 8 | 1, 2, 3 … since the barrier |
//! | group: commands | | a count, then each command: code, task id or queue, status, attempt, worker |
//! | group, rows: rows | | a count, then each row: 0 delete, 1 put, 2 put with expiry; key; expiry; value |
//! | sweep: before, limit | 8, 4 | deletes the first `limit` rows whose expiry is not after `before` |
//!
//! **A leader evaluates, everybody applies.** The rows of a group were computed from the state that the leader holds in memory. They are
//! right only if exactly the entries that the leader knows of were applied before them. Raft does not promise this: a node that lost and
//! regained the leadership may still propose what it computed before. So applying an entry checks two numbers, which every node computes
//! from the log alone:
//! - the *epoch* is the index of the last barrier. A group of an earlier epoch is ignored: another leader has loaded the state since;
//! - the *number* of a group must follow the last one of its epoch. After a gap all later groups are ignored.
//!
//! The proposer of an ignored entry gets [`EntryOutcome::Stale`], and its engine ends.

use std::fmt;

use bytes::Bytes;
use qo_broker::rows::{Command, CommandOutcome, Row, RowWrite};
use qo_core::{PauseTarget, Status, TaskId, Timestamp};
use serde::Serialize;

use crate::codec::{DecodeError, Decoder, Encoder, malformed};

/// The version of the format that this version writes, and the newest that it reads.
const VERSION: u8 = 1;

const BARRIER: u8 = 0;
const GROUP: u8 = 1;
const ROWS: u8 = 2;
const SWEEP: u8 = 3;

const TASK: u8 = 0;
const REMOVED: u8 = 1;
const QUEUE: u8 = 2;

const UNKNOWN_COMMAND: &str = "a command has an unknown kind: update this node";

/// The encoded entry.
#[derive(Clone, PartialEq, Eq)]
pub struct Proposal(Bytes);

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proposal({} bytes)", self.0.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proposal of {} bytes", self.0.len())
    }
}

/// What applying a proposal did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    /// Whether it had an effect.
    pub outcome: EntryOutcome,
    /// The index of its entry.
    pub index: u64,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.outcome, self.index)
    }
}

/// Whether a proposal had an effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EntryOutcome {
    /// It was applied.
    #[default]
    Applied,
    /// It was ignored: another leader has taken over, or an earlier group of the same leader is missing.
    Stale,
}

/// A decoded proposal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) time: Timestamp,
    pub(crate) epoch: u64,
    pub(crate) action: Action,
}

/// What a proposal does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A new leader takes over.
    Barrier,
    /// The rows of a group of the commit loop.
    Group {
        number: u64,
        commands: Vec<LoggedCommand>,
        writes: Vec<RowWrite>,
    },
    /// Rows outside of groups.
    Rows(Vec<RowWrite>),
    /// Expired rows are deleted.
    Sweep { before: Timestamp, limit: u32 },
}

/// A command of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoggedCommand {
    /// Its name: ENQUEUE, CLAIM, COMPLETE, FAIL, RENEW, RELEASE, EXPIRE and so on.
    pub name: String,
    /// The task that it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The status in which it left the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The attempt of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The worker that holds the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The queue or the type that it paused or resumed, or the kind and name of the document that it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
}

/// What the log calls a command.
fn logged_name(name: &str) -> String {
    match name {
        "submit" => "ENQUEUE".to_owned(),
        other => other.to_uppercase(),
    }
}

impl Proposal {
    pub(crate) fn from_bytes(bytes: Bytes) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// A new leader takes over.
    pub(crate) fn barrier(time: Timestamp) -> Self {
        Self(header(BARRIER, time, 0, 0).finish())
    }

    /// The rows of a group.
    pub(crate) fn group(
        time: Timestamp,
        epoch: u64,
        number: u64,
        commands: &[Command],
        writes: &[RowWrite],
    ) -> Self {
        let mut out = header(GROUP, time, epoch, size(writes) + commands.len() * 48);
        out.u64(number).count(commands.len());
        for command in commands {
            put_command(&mut out, command);
        }
        put_writes(&mut out, writes);
        Self(out.finish())
    }

    /// Rows outside of groups.
    pub(crate) fn rows(time: Timestamp, epoch: u64, writes: &[RowWrite]) -> Self {
        let mut out = header(ROWS, time, epoch, size(writes));
        put_writes(&mut out, writes);
        Self(out.finish())
    }

    /// Deletes expired rows.
    pub(crate) fn sweep(time: Timestamp, epoch: u64, before: Timestamp, limit: u32) -> Self {
        let mut out = header(SWEEP, time, epoch, 12);
        out.i64(before.as_millis()).u32(limit);
        Self(out.finish())
    }

    /// Everything that it says.
    pub(crate) fn decode(&self) -> Result<Decoded, DecodeError> {
        self.read(get_commands)
    }

    /// What is applied: commands are only for people, and their texts would cost more than the rows.
    pub(crate) fn decode_rows(&self) -> Result<Decoded, DecodeError> {
        self.read(skip_commands)
    }

    fn read(
        &self,
        commands: impl FnOnce(&mut Decoder) -> Result<Vec<LoggedCommand>, DecodeError>,
    ) -> Result<Decoded, DecodeError> {
        let mut input = Decoder::new(self.0.clone());
        let version = input.u8()?;
        if version != VERSION {
            return malformed(format!(
                "an entry has the version {version}, but this version of qo reads only {VERSION}: update this node"
            ));
        }
        let kind = input.u8()?;
        let time = Timestamp::from_millis(input.i64()?);
        let epoch = input.u64()?;
        let action = match kind {
            BARRIER => Action::Barrier,
            GROUP => Action::Group {
                number: input.u64()?,
                commands: commands(&mut input)?,
                writes: get_writes(&mut input)?,
            },
            ROWS => Action::Rows(get_writes(&mut input)?),
            SWEEP => Action::Sweep {
                before: Timestamp::from_millis(input.i64()?),
                limit: input.u32()?,
            },
            kind => {
                return malformed(format!(
                    "an entry has the kind {kind}, which this version of qo does not know: update this node"
                ));
            }
        };
        input.end()?;
        Ok(Decoded {
            time,
            epoch,
            action,
        })
    }
}

fn header(kind: u8, time: Timestamp, epoch: u64, body: usize) -> Encoder {
    let mut out = Encoder::with_capacity(body + 32);
    out.u8(VERSION).u8(kind).i64(time.as_millis()).u64(epoch);
    out
}

fn size(writes: &[RowWrite]) -> usize {
    let one = |write: &RowWrite| match write {
        RowWrite::Put(row) => row.key.len() + row.value.len() + 17,
        RowWrite::Delete(key) => key.len() + 5,
    };
    writes.iter().map(one).sum()
}

fn put_command(out: &mut Encoder, command: &Command) {
    let name = logged_name(command.name);
    match &command.outcome {
        CommandOutcome::Task {
            id,
            status,
            attempt,
            worker,
        } => {
            out.u8(TASK).bytes(name.as_bytes());
            out.raw(id.as_uuid().as_bytes())
                .bytes(status.to_string().as_bytes())
                .u32(*attempt);
            out.option(worker.as_ref(), |out, worker| {
                out.bytes(worker.as_str().as_bytes());
            });
        }
        CommandOutcome::Removed(id) => {
            out.u8(REMOVED).bytes(name.as_bytes());
            out.raw(id.as_uuid().as_bytes());
        }
        // Named like a queue, so that older nodes can read the entry.
        CommandOutcome::Document(id) => {
            out.u8(QUEUE).bytes(name.as_bytes());
            out.bytes(id.to_string().as_bytes());
        }
        CommandOutcome::Pause(PauseTarget::Queue(queue)) => {
            out.u8(QUEUE).bytes(name.as_bytes());
            out.bytes(queue.as_str().as_bytes());
        }
        CommandOutcome::Pause(target @ PauseTarget::Type(_)) => {
            out.u8(QUEUE).bytes(name.as_bytes());
            out.bytes(target.to_string().as_bytes());
        }
    }
}

fn get_commands(input: &mut Decoder) -> Result<Vec<LoggedCommand>, DecodeError> {
    let count = input.count(18)?;
    (0..count).map(|_| get_command(input)).collect()
}

/// Passes over the commands.
fn skip_commands(input: &mut Decoder) -> Result<Vec<LoggedCommand>, DecodeError> {
    for _ in 0..input.count(18)? {
        let kind = input.u8()?;
        input.bytes()?;
        match kind {
            TASK => {
                let _id: [u8; 16] = input.array()?;
                input.bytes()?;
                input.u32()?;
                input.option(Decoder::bytes)?;
            }
            REMOVED => {
                let _id: [u8; 16] = input.array()?;
            }
            QUEUE => drop(input.bytes()?),
            _ => return malformed(UNKNOWN_COMMAND),
        }
    }
    Ok(Vec::new())
}

fn get_command(input: &mut Decoder) -> Result<LoggedCommand, DecodeError> {
    let kind = input.u8()?;
    let mut command = LoggedCommand {
        name: input.text()?,
        task: None,
        status: None,
        attempt: None,
        worker: None,
        queue: None,
    };
    match kind {
        TASK => {
            command.task = Some(TaskId::from_bytes(input.array()?));
            command.status = input.text()?.parse().ok();
            command.attempt = Some(input.u32()?);
            command.worker = input.option(Decoder::text)?;
        }
        REMOVED => command.task = Some(TaskId::from_bytes(input.array()?)),
        QUEUE => command.queue = Some(input.text()?),
        _ => return malformed(UNKNOWN_COMMAND),
    }
    Ok(command)
}

pub(crate) fn put_writes(out: &mut Encoder, writes: &[RowWrite]) {
    out.count(writes.len());
    for write in writes {
        match write {
            RowWrite::Delete(key) => {
                out.u8(0).bytes(key);
            }
            RowWrite::Put(row) => put_row(out, row),
        }
    }
}

pub(crate) fn put_row(out: &mut Encoder, row: &Row) {
    match row.expires_at {
        None => out.u8(1).bytes(&row.key),
        Some(at) => out.u8(2).bytes(&row.key).i64(at.as_millis()),
    }
    .bytes(&row.value);
}

pub(crate) fn get_writes(input: &mut Decoder) -> Result<Vec<RowWrite>, DecodeError> {
    let count = input.count(5)?;
    (0..count)
        .map(|_| {
            let kind = input.u8()?;
            let key = input.bytes()?;
            let expires_at = match kind {
                0 => return Ok(RowWrite::Delete(key)),
                1 => None,
                2 => Some(Timestamp::from_millis(input.i64()?)),
                _ => return malformed("a row has an unknown kind: update this node"),
            };
            Ok(RowWrite::Put(Row {
                key,
                value: input.bytes()?,
                expires_at,
            }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_can_be_read_back() {
        let id = TaskId::from_random(7);
        let commands = [
            Command {
                name: "submit",
                outcome: CommandOutcome::Task {
                    id,
                    status: Status::Pending,
                    attempt: 0,
                    worker: None,
                },
            },
            Command {
                name: "claim",
                outcome: CommandOutcome::Task {
                    id,
                    status: Status::Running,
                    attempt: 1,
                    worker: Some("w1".parse().unwrap()),
                },
            },
            Command {
                name: "purge",
                outcome: CommandOutcome::Removed(id),
            },
            Command {
                name: "pause",
                outcome: CommandOutcome::Pause(PauseTarget::Queue("mail".parse().unwrap())),
            },
        ];
        let writes = vec![
            RowWrite::put(Bytes::from_static(b"la"), Bytes::from_static(b"1")),
            RowWrite::Delete(Bytes::from_static(b"lb")),
            RowWrite::Put(Row {
                key: Bytes::from_static(b"dc"),
                value: Bytes::new(),
                expires_at: Some(Timestamp::from_millis(99)),
            }),
        ];
        let now = Timestamp::from_millis(5);
        let decoded = Proposal::group(now, 3, 4, &commands, &writes)
            .decode()
            .unwrap();
        assert_eq!((decoded.time, decoded.epoch), (now, 3));
        let rows_only = Proposal::group(now, 3, 4, &commands, &writes)
            .decode_rows()
            .unwrap();
        let Action::Group {
            number: 4,
            commands: skipped,
            writes: applied,
        } = rows_only.action
        else {
            panic!("it is the same group");
        };
        assert_eq!((skipped, &applied), (Vec::new(), &writes));
        let Action::Group {
            number,
            commands,
            writes: read,
        } = decoded.action
        else {
            panic!("it is a group");
        };
        assert_eq!((number, read), (4, writes));
        let names: Vec<_> = commands
            .iter()
            .map(|command| command.name.as_str())
            .collect();
        assert_eq!(names, ["ENQUEUE", "CLAIM", "PURGE", "PAUSE"]);
        assert_eq!(commands[1].worker.as_deref(), Some("w1"));
        assert_eq!(commands[1].status, Some(Status::Running));
    }

    #[test]
    fn damaged_proposals_are_refused() {
        let whole = Proposal::sweep(Timestamp::from_millis(1), 2, Timestamp::from_millis(3), 4);
        assert!(whole.decode().is_ok());
        for length in 0..whole.0.len() {
            assert!(
                Proposal(whole.0.slice(..length)).decode().is_err(),
                "{length}"
            );
        }
        let mut unknown = whole.0.to_vec();
        unknown[0] = 9;
        let error = Proposal(unknown.into()).decode().unwrap_err();
        assert!(error.to_string().contains("update this node"), "{error}");
    }
}
