//! Races: the only way to find a condition that is checked and then, not at the same moment, acted upon.
//!
//! A round sends one conditional write from each of N writers at once and then reads what is stored. [`judge`] says what the
//! round proves. A writer has won if it was told so, and only then; a writer without a clear answer may have won or not.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{PutMode, UpdateVersion};
use serde::{Deserialize, Serialize};
use tokio::sync::{Barrier, oneshot};

use super::ProbeError;
use super::session::{Answer, Session, classify};

/// How often the object that is raced for is created before its failure counts.
const START_ATTEMPTS_MAX: u32 = 4;

/// How long to wait before it is created again.
const START_RETRY_DELAY: Duration = Duration::from_millis(200);

/// What one round proves.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Exactly one writer won, and its bytes are stored.
    Decided,
    /// Nobody won, and nothing contradicts that; it proves nothing.
    Undecided(String),
    /// The store is wrong.
    Broken {
        /// How many writers were told that they had won.
        winners: u32,
        /// What is wrong.
        reason: String,
    },
}

/// What a writer writes. The value counts the swaps, and the rest makes the bytes of any two writers differ.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    value: u64,
    round: u32,
    writer: u32,
}

/// The bytes of each writer of a round.
fn entries(writers: u32, round: u32, value: u64) -> Result<Vec<Bytes>, ProbeError> {
    (0..writers)
        .map(|writer| {
            let entry = Entry {
                value,
                round,
                writer,
            };
            let json = serde_json::to_vec(&entry).map_err(|error| ProbeError::Store {
                doing: "writing an entry of a race",
                detail: error.to_string(),
            })?;
            Ok(Bytes::from(json))
        })
        .collect()
}

/// Sends one write of each writer at the same moment, and waits for every answer, but not longer than `limit`.
async fn race(
    session: &Session<'_>,
    key: &Path,
    mode: &PutMode,
    bodies: &[Bytes],
    limit: Duration,
) -> Result<Vec<Answer>, ProbeError> {
    let start = Arc::new(Barrier::new(bodies.len()));
    let mut answers = Vec::with_capacity(bodies.len());
    for body in bodies {
        let write = session.detached_write(key.clone(), body.clone(), mode.clone(), limit);
        let start = Arc::clone(&start);
        let (send, receive) = oneshot::channel();
        session.runtime.spawn(Box::pin(async move {
            start.wait().await;
            // Nobody waits for the answer any more if the probe itself was abandoned.
            let _ = send.send(write.await);
        }));
        answers.push(receive);
    }
    let mut classified = Vec::with_capacity(answers.len());
    for answer in answers {
        classified.push(match answer.await {
            Ok(answer) => classify(answer)?,
            Err(_) => Answer::Unclear("the request was abandoned".to_owned()),
        });
    }
    Ok(classified)
}

/// Judges one round by its answers, by what is stored after it, by what was stored before, and by what writers of earlier
/// rounds never got an answer to, and so may have been stored since.
fn judge(
    bodies: &[Bytes],
    answers: &[Answer],
    before: Option<&Bytes>,
    stored: Option<&Bytes>,
    pending: &[Bytes],
) -> Judgement {
    let of = |wanted: fn(&Answer) -> bool| {
        let writers = bodies.iter().zip(answers);
        writers
            .filter(move |(_, answer)| wanted(answer))
            .map(|(body, _)| body)
    };
    let winners = || of(|answer| matches!(answer, Answer::Done(_)));
    let count = u32::try_from(winners().count()).unwrap_or(u32::MAX);
    let broken = |reason: String| Judgement::Broken {
        winners: count,
        reason,
    };
    match count {
        0 => {}
        1 if winners().next() == stored => return Judgement::Decided,
        1 => {
            return broken("the winner of a race is not the one whose bytes are stored".to_owned());
        }
        _ => {
            let writers = bodies.len();
            return broken(format!(
                "{count} of {writers} writers won a race that one can win"
            ));
        }
    }
    let unclear = of(|answer| matches!(answer, Answer::Unclear(_)));
    if stored != before && !unclear.chain(pending).any(|body| Some(body) == stored) {
        return broken("every writer was refused, and yet one of them was stored".to_owned());
    }
    let details = answers.iter().find_map(|answer| match answer {
        Answer::Unclear(detail) | Answer::Unsupported(detail) => Some(detail.clone()),
        _ => None,
    });
    Judgement::Undecided(details.unwrap_or_else(|| "every writer was refused".to_owned()))
}

/// One round of creates, on a key of its own.
pub(super) async fn create_round(
    session: &Session<'_>,
    writers: u32,
    round: u32,
    limit: Duration,
) -> Result<(Path, Judgement), ProbeError> {
    let key = session.key(&format!("create-{round}"));
    let bodies = entries(writers, round, 1)?;
    let answers = race(session, &key, &PutMode::Create, &bodies, limit).await?;
    let stored = session.read(&key).await?.map(|stored| stored.body);
    Ok((key, judge(&bodies, &answers, None, stored.as_ref(), &[])))
}

/// The object that all rounds of swaps contend for.
pub(super) struct Counter {
    key: Path,
    tag: UpdateVersion,
    body: Bytes,
    value: u64,
    /// Writes without an answer since the last change. Once another write has changed the object, their tag is outdated.
    pending: Vec<Bytes>,
}

impl Counter {
    /// Makes the object. It is created under a condition and never twice, so that a late first try cannot undo a swap.
    pub(super) async fn start(session: &Session<'_>) -> Result<Self, ProbeError> {
        let mut detail = String::new();
        for attempt in 0..START_ATTEMPTS_MAX {
            let key = session.key(&format!("counter-{attempt}"));
            let body = entries(1, 0, 0)?.swap_remove(0);
            match session.write(&key, body.clone(), PutMode::Create).await? {
                Answer::Done(tag) => {
                    return Ok(Self {
                        key,
                        tag,
                        body,
                        value: 0,
                        pending: Vec::new(),
                    });
                }
                Answer::Unclear(words) | Answer::Unsupported(words) => detail = words,
                Answer::Refused | Answer::Missing => "a create was refused".clone_into(&mut detail),
            }
            session.runtime.sleep(START_RETRY_DELAY).await;
        }
        let doing = "creating the object that is raced for";
        Err(ProbeError::Store { doing, detail })
    }

    /// One round of swaps, all with the same tag.
    pub(super) async fn swap_round(
        &mut self,
        session: &Session<'_>,
        writers: u32,
        round: u32,
        limit: Duration,
    ) -> Result<Judgement, ProbeError> {
        let bodies = entries(writers, round, self.value + 1)?;
        let mode = PutMode::Update(self.tag.clone());
        let answers = race(session, &self.key, &mode, &bodies, limit).await?;
        let Some(stored) = session.read(&self.key).await? else {
            return Ok(Judgement::Broken {
                winners: 0,
                reason: "an object vanished while it was being swapped".to_owned(),
            });
        };
        let (before, after) = (Some(&self.body), Some(&stored.body));
        let judgement = judge(&bodies, &answers, before, after, &self.pending);
        if stored.body == self.body {
            let unclear = bodies.iter().zip(&answers);
            let unclear = unclear.filter(|(_, answer)| matches!(answer, Answer::Unclear(_)));
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
        Ok(judgement)
    }

    /// Whether the stored value is the number of swaps that took effect; if not, what is wrong.
    pub(super) async fn verify(&self, session: &Session<'_>) -> Result<Option<String>, ProbeError> {
        let stored = session.read(&self.key).await?;
        let entry = stored.and_then(|stored| serde_json::from_slice::<Entry>(&stored.body).ok());
        let expected = self.value;
        Ok(match entry {
            Some(entry) if entry.value == expected => None,
            Some(entry) => {
                let value = entry.value;
                Some(format!(
                    "{expected} swaps took effect, and yet {value} are stored"
                ))
            }
            None => Some("the object that was swapped is gone or damaged".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done() -> Answer {
        Answer::Done(UpdateVersion {
            e_tag: None,
            version: None,
        })
    }

    fn unclear() -> Answer {
        Answer::Unclear("503".to_owned())
    }

    fn judged(answers: &[Answer], stored: Option<usize>) -> Judgement {
        let bodies = entries(u32::try_from(answers.len()).unwrap(), 1, 1).unwrap();
        let before = Bytes::from_static(b"before");
        let stored = stored.map_or(&before, |writer| &bodies[writer]);
        judge(&bodies, answers, Some(&before), Some(stored), &[])
    }

    #[test]
    fn one_winner_whose_bytes_are_stored_decides() {
        assert_eq!(
            judged(&[Answer::Refused, done()], Some(1)),
            Judgement::Decided
        );
        assert_eq!(judged(&[unclear(), done()], Some(1)), Judgement::Decided);
    }

    #[test]
    fn wrong_answers_are_never_excused() {
        let broken = |answers: &[Answer], stored| match judged(answers, stored) {
            Judgement::Broken { winners, .. } => Some(winners),
            _ => None,
        };
        assert_eq!(broken(&[done(), done()], Some(1)), Some(2));
        assert_eq!(broken(&[done(), unclear()], Some(1)), Some(1));
        assert_eq!(broken(&[done(), Answer::Refused], None), Some(1));
        assert_eq!(
            broken(&[Answer::Refused, Answer::Refused], Some(0)),
            Some(0)
        );
        assert_eq!(broken(&[Answer::Refused, unclear()], Some(0)), Some(0));
    }

    #[test]
    fn a_round_without_a_winner_proves_nothing() {
        let undecided =
            |answers: &[Answer], stored| matches!(judged(answers, stored), Judgement::Undecided(_));
        assert!(undecided(&[unclear(), Answer::Refused], None));
        assert!(undecided(&[unclear(), Answer::Refused], Some(0)));
        assert!(undecided(&[Answer::Refused, Answer::Refused], None));
    }

    #[test]
    fn a_write_of_an_earlier_round_may_arrive_late() {
        let earlier = entries(2, 1, 1).unwrap();
        let bodies = entries(2, 2, 1).unwrap();
        let answers = [Answer::Refused, Answer::Refused];
        let judged = |pending: &[Bytes]| judge(&bodies, &answers, None, Some(&earlier[0]), pending);
        assert!(matches!(judged(&earlier), Judgement::Undecided(_)));
        assert!(matches!(judged(&[]), Judgement::Broken { .. }));
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
