//! The steps of a script and their results.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use qo_core::task::{OnFailure, OrderingRule};
use qo_core::transition::{Action, Failure, FailureKind, ProgressReport};
use qo_core::{Jitter, Json, LeaseId, Payload, RetryPolicy, Task, TaskId};
use qo_engine::EngineError;
use qo_engine::api::{SubmitRequest, When};

use super::essence::{essence, refusal};
use crate::random::Random;

/// The time between steps, and the time of the first step: the middle of a step, so that small delays do not change a step's number.
pub(super) const STEP: Duration = Duration::from_secs(5);
pub(super) const BEGIN: Duration = Duration::from_millis(22_500);
/// How long a claim waits for a task.
pub(super) const WAIT_MS: u64 = 1_500;
/// The lease of every claim. It ends between two steps, and after the wait of a claim.
pub(super) const LEASE_MS: u64 = 31_800;

const TASKS: u64 = 6;
const STEPS: u64 = 90;

/// Runs a script.
#[async_trait]
pub(super) trait Player: Send {
    /// Waits until this time of the script.
    async fn wait_until(&mut self, at: Duration);
    /// Ends expired leases and expired tasks.
    async fn expire(&mut self) -> Result<(), EngineError>;
    /// Submits a task.
    async fn submit(&mut self, request: SubmitRequest) -> Result<Task, EngineError>;
    /// Claims the one task of a type.
    async fn claim(&mut self, task_type: &str) -> Result<Option<Task>, EngineError>;
    /// Applies an action to a task.
    async fn act(&mut self, id: TaskId, action: Action) -> Result<Task, EngineError>;
    /// Removes a task.
    async fn purge(&mut self, id: TaskId) -> Result<(), EngineError>;
    /// Pauses the queue, or resumes it.
    async fn set_paused(&mut self, paused: bool) -> Result<(), EngineError>;
    /// Reads a task.
    async fn get(&mut self, id: TaskId) -> Result<Task, EngineError>;
}

/// Runs the script of a seed. Returns the result of each step and the final tasks.
pub(super) async fn play(player: &mut dyn Player, seed: u64) -> Vec<String> {
    let mut dice = Random::of(&[seed, 0x5c21]);
    let mut log = Vec::new();
    let mut ids = Vec::new();
    let mut leases: Vec<LeaseId> = Vec::new();
    let mut purged = BTreeSet::new();
    let (mut expiring, mut held) = (BTreeSet::new(), BTreeSet::new());
    let mut at = BEGIN;
    for number in 0..TASKS {
        player.wait_until(at).await;
        at += STEP;
        let Some(request) = request(number, &mut dice) else {
            continue;
        };
        if request.expires.is_some() {
            expiring.insert(ids.len());
        }
        ids.extend(request.id);
        leases.push(LeaseId::from_random(u128::from(number)));
        let submitted = player.submit(request).await;
        log.push(line("submit", submitted, leases.last()));
    }
    for _ in 0..STEPS {
        player.wait_until(at).await;
        at += STEP;
        if let Err(error) = player.expire().await {
            log.push(format!("expire {error}"));
        }
        let place = usize::try_from(dice.below(TASKS)).unwrap_or_default();
        let (Some(id), Some(lease)) = (ids.get(place).copied(), leases.get_mut(place)) else {
            continue;
        };
        let choice = match dice.below(24) {
            // Direct mode cancels an expired task when a claim finds it. Until then the task is pending.
            0..=6 | 11..=24 if expiring.contains(&place) => {
                if held.remove(&place) {
                    12
                } else {
                    0
                }
            }
            choice => choice,
        };
        log.push(match choice {
            0..=6 => {
                let claimed = player.claim(&type_of(place)).await;
                if let Ok(Some(task)) = &claimed {
                    *lease = task.lease_id.unwrap_or(*lease);
                    held.insert(place);
                }
                match claimed {
                    Ok(None) => "claim nothing".to_owned(),
                    Ok(Some(task)) => format!("claim {}", essence(&task)),
                    Err(error) => format!("claim {}", refusal(&error, *lease)),
                }
            }
            7 => {
                // Longer than a lease, so that running attempts expire.
                at += STEP * 8;
                "time passes".to_owned()
            }
            8 => format!("pause {:?}", player.set_paused(true).await),
            9 | 10 => format!("resume {:?}", player.set_paused(false).await),
            11 => {
                let answer = player.purge(id).await;
                if answer.is_ok() {
                    purged.insert(id);
                }
                let answer = answer.map_err(|error| refusal(&error, *lease));
                format!("purge {answer:?}")
            }
            // Direct mode does not trust the store's first response here, and cannot recognise its own change of a purged task.
            _ if purged.contains(&id) => "purged".to_owned(),
            choice => {
                let action = action(choice, *lease);
                let name = action.name();
                line(name, player.act(id, action).await, Some(lease))
            }
        });
    }
    // Running attempts and expired tasks end on every engine.
    at += STEP * 8;
    player.wait_until(at).await;
    if let Err(error) = player.expire().await {
        log.push(format!("expire {error}"));
    }
    log.push(format!("resume {:?}", player.set_paused(false).await));
    for place in expiring.difference(&held) {
        at += STEP;
        player.wait_until(at).await;
        let claimed = player.claim(&type_of(*place)).await;
        log.push(format!("claim {:?}", claimed.map(|task| task.is_some())));
    }
    for (id, lease) in ids.into_iter().zip(&leases) {
        log.push(line("final", player.get(id).await, Some(lease)));
    }
    log
}

fn line(name: &str, answer: Result<Task, EngineError>, lease: Option<&LeaseId>) -> String {
    match (answer, lease) {
        (Ok(task), _) => format!("{name} {}", essence(&task)),
        (Err(error), Some(lease)) => format!("{name} {}", refusal(&error, *lease)),
        (Err(error), None) => format!("{name} {error}"),
    }
}

pub(super) fn type_of(place: usize) -> String {
    format!("type-{place}")
}

fn request(number: u64, dice: &mut Random) -> Option<SubmitRequest> {
    let name = type_of(usize::try_from(number).unwrap_or_default());
    let input = Json::parse(format!("{{\"mark\":{number}}}")).ok()?;
    let mut request = SubmitRequest::new(name.parse().ok()?, input);
    let bits = (u128::from(dice.bits()) << 64) | u128::from(dice.bits());
    request.id = Some(TaskId::from_random(bits));
    request.max_retries = Some(u32::try_from(dice.below(4)).unwrap_or_default());
    request.priority = u8::try_from(dice.below(10)).unwrap_or_default();
    request.retry_policy = RetryPolicy {
        initial_interval_ms: 0,
        max_interval_ms: 0,
        ..RetryPolicy::default()
    };
    match dice.below(6) {
        0 => request.available = When::InMillis(62_000),
        1 => {
            request.expires = Some(When::InMillis(92_000));
            request.max_retries = Some(0);
        }
        _ => {}
    }
    // Direct mode cancels an expired task when a claim finds it, so the tasks behind one would run at another time.
    if request.expires.is_none() && dice.below(2) == 0 {
        request.ordering = Some(OrderingRule {
            key: "line".parse().ok()?,
            on_failure: if dice.below(2) == 0 {
                OnFailure::Continue
            } else {
                OnFailure::Stop
            },
        });
    }
    Some(request)
}

fn action(choice: u64, lease: LeaseId) -> Action {
    let failure = |kind| Failure {
        kind,
        error: "it did not work".into(),
    };
    let jitter = Jitter::new(0);
    match choice {
        12 | 13 => Action::Complete {
            lease,
            output: Some(Payload::Inline(
                Json::parse("{\"ok\":true}".to_owned()).unwrap_or_else(|_| Json::null()),
            )),
        },
        14 | 15 => Action::Fail {
            lease,
            failure: failure(FailureKind::Retryable),
            jitter,
        },
        16 => Action::Fail {
            lease,
            failure: failure(FailureKind::Permanent),
            jitter,
        },
        17 => Action::Release { lease },
        18 => Action::Snooze {
            lease,
            delay_ms: 12_000,
        },
        19 => Action::Renew {
            lease,
            lease_ms: LEASE_MS,
        },
        20 => Action::Progress {
            lease,
            report: ProgressReport {
                percent: 40.0,
                message: None,
            },
        },
        21 => Action::Cancel {
            reason: Some("enough".into()),
        },
        22 => Action::Replay,
        _ => Action::Archive,
    }
}
