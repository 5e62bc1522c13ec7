//! Races: the only way to detect a store that checks a condition and applies the write later.
//!
//! A round sends one conditional write from each of N writers concurrently and then reads the object. [`judge`]
//! evaluates the round. A writer has won only if the store confirmed its write. A writer with an unclear response may
//! or may not have won.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{PutMode, UpdateVersion};
use serde::{Deserialize, Serialize};
use tokio::sync::{Barrier, oneshot};

use super::ProbeError;
use super::session::{Session, WriteReply, classify};

/// The maximum number of attempts to create the contended object.
const START_ATTEMPTS_MAX: u32 = 4;

/// The delay between these attempts.
const START_RETRY_DELAY: Duration = Duration::from_millis(200);

/// The result of one round.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RoundResult {
    /// Exactly one writer won, and its bytes are stored.
    Decided,
    /// No writer won, and nothing contradicts that. The round proves nothing.
    Undecided(String),
    /// The store is incorrect.
    Broken {
        /// The number of writers whose write was confirmed.
        winners: u32,
        /// What is wrong.
        reason: String,
    },
}

/// The body of a write. The value counts the swaps; the other fields make the bytes of any two writers differ.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    value: u64,
    round: u32,
    writer: u32,
}

/// The bodies of all writers of a round.
fn entries(writers: u32, round: u32, value: u64) -> Result<Vec<Bytes>, ProbeError> {
    (0..writers)
        .map(|writer| {
            let entry = Entry {
                value,
                round,
                writer,
            };
            let json = serde_json::to_vec(&entry).map_err(|error| ProbeError::Store {
                doing: "serializing an entry of a race",
                detail: error.to_string(),
            })?;
            Ok(Bytes::from(json))
        })
        .collect()
}

/// Sends one write per writer concurrently and waits for all responses, at most `limit`.
async fn race(
    session: &Session<'_>,
    key: &Path,
    mode: &PutMode,
    bodies: &[Bytes],
    limit: Duration,
) -> Result<Vec<WriteReply>, ProbeError> {
    let start = Arc::new(Barrier::new(bodies.len()));
    let mut replies = Vec::with_capacity(bodies.len());
    for body in bodies {
        let write = session.detached_write(key.clone(), body.clone(), mode.clone(), limit);
        let start = Arc::clone(&start);
        let (send, receive) = oneshot::channel();
        session.runtime.spawn(Box::pin(async move {
            start.wait().await;
            // The receiver is gone if the probe was dropped.
            let _ = send.send(write.await);
        }));
        replies.push(receive);
    }
    let mut classified = Vec::with_capacity(replies.len());
    for reply in replies {
        classified.push(match reply.await {
            Ok(reply) => classify(reply)?,
            Err(_) => WriteReply::Unclear("the request was abandoned".to_owned()),
        });
    }
    Ok(classified)
}

/// Evaluates one round from its responses, the stored bytes before and after it, and the writes of earlier rounds
/// that got no response and may have been applied since.
fn judge(
    bodies: &[Bytes],
    replies: &[WriteReply],
    before: Option<&Bytes>,
    stored: Option<&Bytes>,
    pending: &[Bytes],
) -> RoundResult {
    let of = |wanted: fn(&WriteReply) -> bool| {
        let writers = bodies.iter().zip(replies);
        writers
            .filter(move |(_, reply)| wanted(reply))
            .map(|(body, _)| body)
    };
    let winners = || of(|reply| matches!(reply, WriteReply::Done(_)));
    let count = u32::try_from(winners().count()).unwrap_or(u32::MAX);
    let broken = |reason: String| RoundResult::Broken {
        winners: count,
        reason,
    };
    match count {
        0 => {}
        1 if winners().next() == stored => return RoundResult::Decided,
        1 => {
            return broken("the stored bytes are not those of the winner of a race".to_owned());
        }
        _ => {
            let writers = bodies.len();
            return broken(format!(
                "{count} of {writers} writers won a race that only one can win"
            ));
        }
    }
    let unclear = of(|reply| matches!(reply, WriteReply::Unclear(_)));
    if stored != before && !unclear.chain(pending).any(|body| Some(body) == stored) {
        return broken("every writer was refused, but the bytes of one are stored".to_owned());
    }
    let details = replies.iter().find_map(|reply| match reply {
        WriteReply::Unclear(detail) | WriteReply::Unsupported(detail) => Some(detail.clone()),
        _ => None,
    });
    RoundResult::Undecided(details.unwrap_or_else(|| "every writer was refused".to_owned()))
}

/// One round of creates on a new key.
pub(super) async fn create_round(
    session: &Session<'_>,
    writers: u32,
    round: u32,
    limit: Duration,
) -> Result<(Path, RoundResult), ProbeError> {
    let key = session.key(&format!("create-{round}"));
    let bodies = entries(writers, round, 1)?;
    let replies = race(session, &key, &PutMode::Create, &bodies, limit).await?;
    let stored = session.read(&key).await?.map(|stored| stored.body);
    Ok((key, judge(&bodies, &replies, None, stored.as_ref(), &[])))
}

/// The object that all swap rounds contend for.
pub(super) struct Counter {
    key: Path,
    tag: UpdateVersion,
    body: Bytes,
    value: u64,
    /// Writes without a response since the last change. Once another write changes the object, their tag is
    /// outdated.
    pending: Vec<Bytes>,
}

impl Counter {
    /// Creates the object. Each attempt uses a new key and a condition, so that a late first attempt cannot undo
    /// a swap.
    pub(super) async fn start(session: &Session<'_>) -> Result<Self, ProbeError> {
        let mut detail = String::new();
        for attempt in 0..START_ATTEMPTS_MAX {
            let key = session.key(&format!("counter-{attempt}"));
            let body = entries(1, 0, 0)?.swap_remove(0);
            match session.write(&key, body.clone(), PutMode::Create).await? {
                WriteReply::Done(tag) => {
                    return Ok(Self {
                        key,
                        tag,
                        body,
                        value: 0,
                        pending: Vec::new(),
                    });
                }
                WriteReply::Unclear(words) | WriteReply::Unsupported(words) => detail = words,
                WriteReply::Refused | WriteReply::Missing => {
                    "a create was refused".clone_into(&mut detail);
                }
            }
            session.runtime.sleep(START_RETRY_DELAY).await;
        }
        let doing = "creating the contended object";
        Err(ProbeError::Store { doing, detail })
    }

    /// One round of swaps, all with the same tag.
    pub(super) async fn swap_round(
        &mut self,
        session: &Session<'_>,
        writers: u32,
        round: u32,
        limit: Duration,
    ) -> Result<RoundResult, ProbeError> {
        let bodies = entries(writers, round, self.value + 1)?;
        let mode = PutMode::Update(self.tag.clone());
        let replies = race(session, &self.key, &mode, &bodies, limit).await?;
        let Some(stored) = session.read(&self.key).await? else {
            return Ok(RoundResult::Broken {
                winners: 0,
                reason: "the object disappeared during swaps".to_owned(),
            });
        };
        let (before, after) = (Some(&self.body), Some(&stored.body));
        let result = judge(&bodies, &replies, before, after, &self.pending);
        if stored.body == self.body {
            let unclear = bodies.iter().zip(&replies);
            let unclear = unclear.filter(|(_, reply)| matches!(reply, WriteReply::Unclear(_)));
            self.pending.extend(unclear.map(|(body, _)| body.clone()));
        } else {
            self.value += 1;
            self.pending.clear();
        }
        self.body = stored.body;
        self.tag = UpdateVersion {
            e_tag: stored.meta.e_tag,
            version: stored.meta.version,
        };
        Ok(result)
    }

    /// Checks that the stored value equals the number of successful swaps. Returns what is wrong.
    pub(super) async fn verify(&self, session: &Session<'_>) -> Result<Option<String>, ProbeError> {
        let stored = session.read(&self.key).await?.map(|stored| stored.body);
        Ok(judge_counter(stored.as_ref(), self.value, &self.pending))
    }
}

/// What is wrong with a counter that this many swaps have changed. A write without a response may have been applied since.
fn judge_counter(stored: Option<&Bytes>, swaps: u64, pending: &[Bytes]) -> Option<String> {
    let entry = stored.and_then(|body| serde_json::from_slice::<Entry>(body).ok());
    let Some(Entry { value, .. }) = entry else {
        return Some("the swapped object is missing or damaged".to_owned());
    };
    let is_late = stored.is_some_and(|body| pending.contains(body));
    (value != swaps && !is_late)
        .then(|| format!("{swaps} swaps took effect, but the stored counter is {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done() -> WriteReply {
        WriteReply::Done(UpdateVersion {
            e_tag: None,
            version: None,
        })
    }

    fn unclear() -> WriteReply {
        WriteReply::Unclear("503".to_owned())
    }

    fn judged(replies: &[WriteReply], stored: Option<usize>) -> RoundResult {
        let bodies = entries(u32::try_from(replies.len()).unwrap(), 1, 1).unwrap();
        let before = Bytes::from_static(b"before");
        let stored = stored.map_or(&before, |writer| &bodies[writer]);
        judge(&bodies, replies, Some(&before), Some(stored), &[])
    }

    #[test]
    fn one_winner_whose_bytes_are_stored_decides() {
        assert_eq!(
            judged(&[WriteReply::Refused, done()], Some(1)),
            RoundResult::Decided
        );
        assert_eq!(judged(&[unclear(), done()], Some(1)), RoundResult::Decided);
    }

    #[test]
    fn incorrect_replies_are_never_excused() {
        let broken = |replies: &[WriteReply], stored| match judged(replies, stored) {
            RoundResult::Broken { winners, .. } => Some(winners),
            _ => None,
        };
        assert_eq!(broken(&[done(), done()], Some(1)), Some(2));
        assert_eq!(broken(&[done(), unclear()], Some(1)), Some(1));
        assert_eq!(broken(&[done(), WriteReply::Refused], None), Some(1));
        assert_eq!(
            broken(&[WriteReply::Refused, WriteReply::Refused], Some(0)),
            Some(0)
        );
        assert_eq!(broken(&[WriteReply::Refused, unclear()], Some(0)), Some(0));
    }

    #[test]
    fn a_swap_that_is_applied_late_is_no_second_one() {
        let bodies = entries(2, 7, 4).unwrap();
        let judge = |stored: &Bytes, swaps, pending| judge_counter(Some(stored), swaps, pending);
        assert_eq!(judge(&bodies[0], 4, &[]), None);
        assert_eq!(judge(&bodies[0], 3, &bodies), None);
        assert!(judge(&bodies[0], 3, &[]).is_some());
        assert!(judge(&bodies[0], 3, &bodies[1..]).is_some());
        assert!(judge(&bodies[0], 5, &[]).is_some());
        assert!(judge_counter(None, 4, &[]).is_some());
    }

    #[test]
    fn a_round_without_a_winner_proves_nothing() {
        let undecided = |replies: &[WriteReply], stored| {
            matches!(judged(replies, stored), RoundResult::Undecided(_))
        };
        assert!(undecided(&[unclear(), WriteReply::Refused], None));
        assert!(undecided(&[unclear(), WriteReply::Refused], Some(0)));
        assert!(undecided(&[WriteReply::Refused, WriteReply::Refused], None));
    }

    #[test]
    fn a_write_of_an_earlier_round_may_arrive_late() {
        let earlier = entries(2, 1, 1).unwrap();
        let bodies = entries(2, 2, 1).unwrap();
        let replies = [WriteReply::Refused, WriteReply::Refused];
        let judged = |pending: &[Bytes]| judge(&bodies, &replies, None, Some(&earlier[0]), pending);
        assert!(matches!(judged(&earlier), RoundResult::Undecided(_)));
        assert!(matches!(judged(&[]), RoundResult::Broken { .. }));
    }

    #[test]
    fn the_bytes_of_any_two_writers_differ() {
        let mut all = entries(32, 1, 7).unwrap();
        all.extend(entries(32, 2, 7).unwrap());
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 64);
    }
}
