//! Carries messages from callers to the commit loop.
//!
//! There are three lanes. Every group takes from all of them, so a flood of submits delays neither a renewal nor an outcome nor a
//! claim by more than the group that is being formed. Submits are admitted by number and size: while too many have no response, further
//! ones are rejected at once and change nothing, so memory and waiting times stay bounded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qo_engine::EngineError;
use tokio::sync::mpsc;

use super::config::BrokerConfig;
use super::message::QueuedMessage;

/// The most submitted tasks in one group. A larger group would delay everything behind it.
const SUBMITS_PER_GROUP: u64 = 8_192;
/// The most bytes of submitted tasks in one group.
const SUBMIT_BYTES_PER_GROUP: u64 = 16 * 1024 * 1024;

/// A lane of messages. Each lane keeps the order of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// Renewals and outcomes: work is lost if they are late.
    Leases,
    /// Claims, reads and the actions of operators.
    Others,
    Submits,
}

/// The senders of all lanes.
#[derive(Debug)]
pub(super) struct Outbox {
    leases: mpsc::Sender<QueuedMessage>,
    others: mpsc::Sender<QueuedMessage>,
    submits: mpsc::Sender<QueuedMessage>,
    admission: Arc<SubmitAdmission>,
}

/// The receivers of all lanes.
#[derive(Debug)]
pub(super) struct Inbox {
    leases: mpsc::Receiver<QueuedMessage>,
    others: mpsc::Receiver<QueuedMessage>,
    submits: mpsc::Receiver<QueuedMessage>,
    /// The most messages of one lane in a group.
    group_max: usize,
}

/// Creates the lanes.
pub(super) fn lanes(config: &BrokerConfig) -> (Outbox, Inbox) {
    let capacity = config.queue_max.max(1);
    let (leases, leases_receiver) = mpsc::channel(capacity);
    let (others, others_receiver) = mpsc::channel(capacity);
    let (submits, submits_receiver) = mpsc::channel(capacity);
    let outbox = Outbox {
        leases,
        others,
        submits,
        admission: Arc::new(SubmitAdmission {
            tasks_max: config.submits_max,
            bytes_max: config.submit_bytes_max,
            taken: Mutex::default(),
        }),
    };
    let inbox = Inbox {
        leases: leases_receiver,
        others: others_receiver,
        submits: submits_receiver,
        group_max: config.group_max.max(1),
    };
    (outbox, inbox)
}

impl Outbox {
    /// Sends a message on its lane. Waits while the lane is full. Returns false if the loop has ended.
    pub(super) async fn send(&self, mut queued: QueuedMessage) -> Result<bool, EngineError> {
        let lane = match queued.message.lane() {
            Lane::Leases => &self.leases,
            Lane::Others => &self.others,
            Lane::Submits => {
                let (tasks, bytes) = queued.message.submits();
                queued.permit = Some(SubmitAdmission::admit(&self.admission, tasks, bytes)?);
                &self.submits
            }
        };
        Ok(lane.send(queued).await.is_ok())
    }

    /// Resolves when the loop has ended.
    pub(super) async fn closed(&self) {
        self.others.closed().await;
    }
}

impl Inbox {
    /// Waits for a message, and takes a group of them: renewals and outcomes first. Returns false if all senders are gone. Leaves
    /// submits where they are unless `takes_submits`. Cancelling the wait loses no message.
    pub(super) async fn receive(
        &mut self,
        batch: &mut Vec<QueuedMessage>,
        takes_submits: bool,
    ) -> bool {
        let first = tokio::select! {
            biased;
            Some(queued) = self.leases.recv() => queued,
            Some(queued) = self.others.recv() => queued,
            Some(queued) = self.submits.recv(), if takes_submits => queued,
            else => return false,
        };
        batch.push(first);
        self.fill(batch, takes_submits);
        true
    }

    /// Takes the messages that have arrived, up to the limits of a group.
    pub(super) fn fill(&mut self, batch: &mut Vec<QueuedMessage>, takes_submits: bool) {
        for lane in [&mut self.leases, &mut self.others] {
            let most = batch.len() + self.group_max;
            while batch.len() < most
                && let Ok(queued) = lane.try_recv()
            {
                batch.push(queued);
            }
        }
        if !takes_submits {
            return;
        }
        let (mut tasks, mut bytes) = batch.iter().fold((0, 0), |(tasks, bytes), queued| {
            let submits = queued.message.submits();
            (tasks + submits.0, bytes + submits.1)
        });
        let most = batch.len() + self.group_max;
        while batch.len() < most
            && tasks < SUBMITS_PER_GROUP
            && bytes < SUBMIT_BYTES_PER_GROUP
            && let Ok(queued) = self.submits.try_recv()
        {
            let submits = queued.message.submits();
            tasks += submits.0;
            bytes += submits.1;
            batch.push(queued);
        }
    }

    /// Accepts no more messages, and returns those that were sent before.
    pub(super) fn close(&mut self) -> Vec<QueuedMessage> {
        let mut rest = Vec::new();
        for lane in [&mut self.leases, &mut self.others, &mut self.submits] {
            lane.close();
            while let Ok(queued) = lane.try_recv() {
                rest.push(queued);
            }
        }
        rest
    }
}

/// Bounds the submitted tasks that have no response yet.
#[derive(Debug)]
struct SubmitAdmission {
    tasks_max: u64,
    bytes_max: u64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    tasks: u64,
    bytes: u64,
}

impl SubmitAdmission {
    fn admit(admission: &Arc<Self>, tasks: u64, bytes: u64) -> Result<SubmitPermit, EngineError> {
        let mut taken = admission.lock();
        let is_full =
            taken.tasks + tasks > admission.tasks_max || taken.bytes + bytes > admission.bytes_max;
        // A message that is larger than the limits is admitted alone.
        if is_full && taken.tasks > 0 {
            return Err(EngineError::Overloaded {
                detail: format!(
                    "{} submitted tasks with {} bytes are still being written",
                    taken.tasks, taken.bytes
                ),
            });
        }
        taken.tasks += tasks;
        taken.bytes += bytes;
        Ok(SubmitPermit {
            admission: Arc::clone(admission),
            tasks,
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The share that one message has of the limit. Dropping it returns the share.
#[derive(Debug)]
pub(super) struct SubmitPermit {
    admission: Arc<SubmitAdmission>,
    tasks: u64,
    bytes: u64,
}

impl Drop for SubmitPermit {
    fn drop(&mut self) {
        let mut taken = self.admission.lock();
        taken.tasks -= self.tasks;
        taken.bytes -= self.bytes;
    }
}
