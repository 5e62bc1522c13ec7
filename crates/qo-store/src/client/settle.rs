//! Conditional writes: sending them, and determining whether they were applied. The rules are in the [parent
//! module](super).

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, PutMode, PutOptions, PutPayload};
use qo_core::OpId;

use super::authorship::Authorship;
use super::classify::Failure;
use super::retry::Budget;
use super::tag::Tag;
use super::{Object, StoreClient, key_path, no_tag, without_bucket};
use crate::error::StoreError;

/// How a conditional write is known to have been applied.
#[derive(Debug, Clone)]
pub enum Written {
    /// The store confirmed it and returned the tag.
    Confirmed(Tag),
    /// The response was lost, but a read found this write as the newest.
    Recognised(Tag),
    /// The response was lost, and another writer has since changed the object. Read it again to continue.
    BuiltUpon,
}

impl Written {
    /// The tag of the written state, if it is still the newest.
    pub fn tag(&self) -> Option<&Tag> {
        match self {
            Self::Confirmed(tag) | Self::Recognised(tag) => Some(tag),
            Self::BuiltUpon => None,
        }
    }
}

/// The condition of a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum WriteCondition<'a> {
    /// There is no object.
    Absent,
    /// The object is in the state that this tag identifies.
    Unchanged(&'a Tag),
}

/// What reading back shows about a write in doubt.
enum ReadBack {
    /// It was applied.
    Applied(Written),
    /// The object is unchanged: the write was not applied so far.
    Untouched,
    /// The write was not applied, and its condition can never hold again.
    Lost,
    /// The condition can never hold again, and the stored object does not show whether the write was applied.
    Untraceable,
    /// The read failed.
    Unread(Failure),
}

struct Write<'a> {
    client: &'a StoreClient,
    operation: &'static str,
    key: &'a str,
    path: Path,
    body: Bytes,
    condition: WriteCondition<'a>,
    op: &'a OpId,
}

/// Sends a conditional write and determines whether it was applied.
pub(super) async fn write(
    client: &StoreClient,
    operation: &'static str,
    key: &str,
    body: Bytes,
    condition: WriteCondition<'_>,
    op: &OpId,
) -> Result<Written, StoreError> {
    let path = key_path(key)?;
    Write {
        client,
        operation,
        key,
        path,
        body,
        condition,
        op,
    }
    .run()
    .await
}

impl Write<'_> {
    async fn run(&self) -> Result<Written, StoreError> {
        let mut budget = self.client.budget();
        // Whether an earlier attempt got no definite response, and whether one may have been applied or may
        // still be.
        let mut unsure = false;
        let mut maybe_applied = false;
        loop {
            let failure = match self.send(&mut budget).await {
                Ok(written) => return written,
                Err(failure) => failure,
            };
            let refused = failure == Failure::ConditionFailed;
            if refused && !unsure {
                if self.client.config().trust_first_refusal {
                    return Err(self.lost());
                }
                // A first copy of this request may have been applied and made this one fail.
                maybe_applied = true;
            }
            if !refused && !unsure && !failure.is_transient() {
                return Err(failure.give_up(self.operation, self.key, &budget, false));
            }
            unsure = true;
            maybe_applied |= failure.may_have_applied();
            tracing::debug!(
                operation = self.operation,
                key = self.key,
                ?failure,
                "write in doubt"
            );

            if !failure.is_throttled()
                && let Some(result) = self.settle(&budget, maybe_applied).await
            {
                return result;
            }
            if (refused || failure.is_transient()) && budget.pause(failure.is_throttled()).await {
                continue;
            }
            // Throttled attempts were not read back, but an earlier attempt may have been applied.
            if failure.is_throttled()
                && maybe_applied
                && let Some(result) = self.settle(&budget, maybe_applied).await
            {
                return result;
            }
            return Err(failure.give_up(self.operation, self.key, &budget, maybe_applied));
        }
    }

    /// One attempt. The outer result is whether the store definitely applied the write.
    async fn send(&self, budget: &mut Budget<'_>) -> Result<Result<Written, StoreError>, Failure> {
        let mode = match self.condition {
            WriteCondition::Absent => PutMode::Create,
            WriteCondition::Unchanged(tag) => PutMode::Update(tag.expected()),
        };
        let request = self.client.objects().put_opts(
            &self.path,
            PutPayload::from(self.body.clone()),
            PutOptions::from(mode),
        );
        let timeout = budget.next_timeout();
        match self.client.with_timeout(timeout, request).await? {
            Ok(result) => Ok(Tag::of_put(result)
                .map(Written::Confirmed)
                .ok_or_else(|| no_tag(self.operation))),
            Err(error) => Err(match (Failure::of(&error), self.condition) {
                // Some stores return 304 for a failed If-None-Match.
                (Failure::NotModified, _) | (Failure::NotFound, WriteCondition::Unchanged(_)) => {
                    Failure::ConditionFailed
                }
                (failure, _) => without_bucket(failure),
            }),
        }
    }

    /// Reads back. `None` if the write was not applied so far and may be sent again.
    async fn settle(
        &self,
        budget: &Budget<'_>,
        maybe_applied: bool,
    ) -> Option<Result<Written, StoreError>> {
        match self.read_back(budget.for_settling()).await {
            ReadBack::Applied(written) => Some(Ok(written)),
            ReadBack::Untouched => None,
            ReadBack::Untraceable if maybe_applied => {
                let failure = Failure::Doubtful(
                    "the object was replaced or deleted, and it is unknown by which write"
                        .to_owned(),
                );
                Some(Err(failure.give_up(self.operation, self.key, budget, true)))
            }
            ReadBack::Lost | ReadBack::Untraceable => Some(Err(self.lost())),
            ReadBack::Unread(failure) => {
                Some(Err(failure.give_up(self.operation, self.key, budget, true)))
            }
        }
    }

    async fn read_back(&self, mut budget: Budget<'_>) -> ReadBack {
        loop {
            let timeout = budget.next_timeout();
            let read = self
                .client
                .get_once(timeout, &self.path, GetOptions::default());
            match (read.await, self.condition) {
                (Ok(object), _) => return self.judge(object),
                (Err(Failure::NotFound), WriteCondition::Absent) => return ReadBack::Untouched,
                (Err(Failure::NotFound), WriteCondition::Unchanged(_)) => {
                    return ReadBack::Untraceable;
                }
                (Err(failure), _) => {
                    if !failure.is_transient() || !budget.pause(failure.is_throttled()).await {
                        return ReadBack::Unread(failure);
                    }
                }
            }
        }
    }

    fn judge(&self, stored: Object) -> ReadBack {
        // Compare the expected tag first: while it matches, sending again is safe, whatever the body
        // contains.
        if let WriteCondition::Unchanged(expected) = self.condition
            && stored.tag.matches(expected)
        {
            return ReadBack::Untouched;
        }
        let recognise = self.client.config().recognise;
        match recognise(&stored.body, self.op) {
            Some(Authorship::Latest) => ReadBack::Applied(Written::Recognised(stored.tag)),
            Some(Authorship::BuiltUpon) => ReadBack::Applied(Written::BuiltUpon),
            None if recognise(&self.body, self.op).is_some() => ReadBack::Lost,
            None => ReadBack::Untraceable,
        }
    }

    /// The error for a write that lost to another writer.
    fn lost(&self) -> StoreError {
        let key = self.key.to_owned();
        match self.condition {
            WriteCondition::Absent => StoreError::AlreadyExists { key },
            WriteCondition::Unchanged(_) => StoreError::Conflict { key },
        }
    }
}
