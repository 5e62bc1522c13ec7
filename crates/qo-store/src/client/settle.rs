//! Conditional writes: sending them, and finding out what became of them. The rules are in the [module above](super).

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
    /// The store said so, and named what it wrote.
    Answered(Tag),
    /// No answer said so, but a read found this write to be the newest.
    Recognised(Tag),
    /// No answer said so, but a read found what somebody has since made of this write. To go on, read again.
    BuiltUpon,
}

impl Written {
    /// Names the written state, if that is still the newest.
    pub fn tag(&self) -> Option<&Tag> {
        match self {
            Self::Answered(tag) | Self::Recognised(tag) => Some(tag),
            Self::BuiltUpon => None,
        }
    }
}

/// What must hold for a write to be applied.
#[derive(Debug, Clone, Copy)]
pub(super) enum Condition<'a> {
    /// There is no object.
    Absent,
    /// The object is what this tag names.
    Unchanged(&'a Tag),
}

/// What a read says about a write in doubt.
enum Verdict {
    /// It was applied.
    Applied(Written),
    /// What it was made for is still there: it was not applied so far.
    Untouched,
    /// Its condition can never hold again, and it was not applied.
    Lost,
    /// Its condition can never hold again, and the traces that would tell whether it was applied are gone.
    Untraceable,
    /// Nothing could be read.
    Unread(Failure),
}

struct Write<'a> {
    client: &'a StoreClient,
    operation: &'static str,
    key: &'a str,
    path: Path,
    body: Bytes,
    condition: Condition<'a>,
    op: &'a OpId,
}

/// Writes under a condition, and settles what the answers leave open.
pub(super) async fn write(
    client: &StoreClient,
    operation: &'static str,
    key: &str,
    body: Bytes,
    condition: Condition<'_>,
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
        // Whether an earlier try got no definite answer, and whether one may have been applied or may yet be.
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
                // What refused may have been a first copy of this very request.
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
                "unsure"
            );

            if !failure.is_throttled()
                && let Some(end) = self.settle(&budget, maybe_applied).await
            {
                return end;
            }
            if (refused || failure.is_transient()) && budget.pause(failure.is_throttled()).await {
                continue;
            }
            // Throttled tries were not read back so far; what came before them may still be found.
            if failure.is_throttled()
                && maybe_applied
                && let Some(end) = self.settle(&budget, maybe_applied).await
            {
                return end;
            }
            return Err(failure.give_up(self.operation, self.key, &budget, maybe_applied));
        }
    }

    /// One try. The outer result is whether there was a definite success.
    async fn send(&self, budget: &mut Budget<'_>) -> Result<Result<Written, StoreError>, Failure> {
        let mode = match self.condition {
            Condition::Absent => PutMode::Create,
            Condition::Unchanged(tag) => PutMode::Update(tag.expected()),
        };
        let request = self.client.objects().put_opts(
            &self.path,
            PutPayload::from(self.body.clone()),
            PutOptions::from(mode),
        );
        let timeout = budget.next_timeout();
        match self.client.answer_within(timeout, request).await? {
            Ok(result) => Ok(Tag::of_put(result)
                .map(Written::Answered)
                .ok_or_else(|| no_tag(self.operation))),
            Err(error) => Err(match (Failure::of(&error), self.condition) {
                // If-None-Match is 304 to some.
                (Failure::NotModified, _) | (Failure::NotFound, Condition::Unchanged(_)) => {
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
            Verdict::Applied(written) => Some(Ok(written)),
            Verdict::Untouched => None,
            Verdict::Untraceable if maybe_applied => {
                let failure = Failure::Doubtful(
                    "the object was replaced or deleted, and does not tell by whom".to_owned(),
                );
                Some(Err(failure.give_up(self.operation, self.key, budget, true)))
            }
            Verdict::Lost | Verdict::Untraceable => Some(Err(self.lost())),
            Verdict::Unread(failure) => {
                Some(Err(failure.give_up(self.operation, self.key, budget, true)))
            }
        }
    }

    async fn read_back(&self, mut budget: Budget<'_>) -> Verdict {
        loop {
            let timeout = budget.next_timeout();
            let read = self
                .client
                .get_once(timeout, &self.path, GetOptions::default());
            match (read.await, self.condition) {
                (Ok(object), _) => return self.judge(object),
                (Err(Failure::NotFound), Condition::Absent) => return Verdict::Untouched,
                (Err(Failure::NotFound), Condition::Unchanged(_)) => return Verdict::Untraceable,
                (Err(failure), _) => {
                    if !failure.is_transient() || !budget.pause(failure.is_throttled()).await {
                        return Verdict::Unread(failure);
                    }
                }
            }
        }
    }

    fn judge(&self, stored: Object) -> Verdict {
        // The expected tag comes first: as long as it stands, sending again is safe, whatever the body says.
        if let Condition::Unchanged(expected) = self.condition
            && stored.tag.matches(expected)
        {
            return Verdict::Untouched;
        }
        let recognise = self.client.config().recognise;
        match recognise(&stored.body, self.op) {
            Some(Authorship::Latest) => Verdict::Applied(Written::Recognised(stored.tag)),
            Some(Authorship::BuiltUpon) => Verdict::Applied(Written::BuiltUpon),
            None if recognise(&self.body, self.op).is_some() => Verdict::Lost,
            None => Verdict::Untraceable,
        }
    }

    /// Somebody else's write won.
    fn lost(&self) -> StoreError {
        let key = self.key.to_owned();
        match self.condition {
            Condition::Absent => StoreError::AlreadyExists { key },
            Condition::Unchanged(_) => StoreError::Conflict { key },
        }
    }
}
