//! Checks by a single caller: whether conditions are honoured at all, and whether lists and deletes are correct.
//!
//! Each group of checks uses new keys. An unclear response (a 5xx, no response, "try again") proves nothing, so the
//! group is repeated with other keys a few times.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{try_join, try_join3};
use object_store::path::Path;
use object_store::{Error, GetOptions, PutMode, UpdateVersion};
use qo_core::Timestamp;

use super::ProbeError;
use super::report::{Check, CheckName};
use super::session::{Session, WriteReply, describe, is_denied};

/// The maximum number of times a group is repeated.
const ATTEMPTS_MAX: u32 = 8;

/// The delay before a group is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The meaning of a 404 to a write.
const NO_BUCKET: &str = "the bucket does not exist";

/// The results of the groups.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) checks: Vec<Check>,
    pub(super) equal_bytes_change_tag: Option<bool>,
    pub(super) store_time: Option<Timestamp>,
}

impl Findings {
    fn pass(&mut self, name: CheckName, reason: &str) {
        self.checks.push(Check::passed(name, reason));
    }

    fn fail(&mut self, name: CheckName, reason: impl Into<String>) {
        self.checks.push(Check::failed(name, reason));
    }

    fn has_failed(&self, name: CheckName) -> bool {
        self.checks
            .iter()
            .any(|check| check.name == name && check.outcome == super::CheckOutcome::Failed)
    }
}

/// Why a group ended early.
enum Interruption {
    Unclear(String),
    Fatal(ProbeError),
}

impl From<ProbeError> for Interruption {
    fn from(error: ProbeError) -> Self {
        Self::Fatal(error)
    }
}

type GroupResult<T> = Result<T, Interruption>;

#[derive(Clone, Copy)]
enum CheckGroup {
    Conditions,
    Listing,
    ConditionalGet,
}

/// Runs all groups concurrently. They share no keys.
pub(super) async fn single_caller(session: &Session<'_>) -> Result<Findings, ProbeError> {
    let (mut all, listing, get) = try_join3(
        settle(session, CheckGroup::Conditions),
        settle(session, CheckGroup::Listing),
        settle(session, CheckGroup::ConditionalGet),
    )
    .await?;
    all.store_time = listing.store_time;
    all.checks.extend(listing.checks);
    all.checks.extend(get.checks);
    Ok(all)
}

async fn settle(session: &Session<'_>, group: CheckGroup) -> Result<Findings, ProbeError> {
    let mut attempt = 1;
    loop {
        let found = match group {
            CheckGroup::Conditions => Box::pin(conditions(session, attempt)).await,
            CheckGroup::Listing => Box::pin(listing(session, attempt)).await,
            CheckGroup::ConditionalGet => Box::pin(conditional_get(session, attempt)).await,
        };
        match found {
            Ok(findings) => return Ok(findings),
            Err(Interruption::Fatal(error)) => return Err(error),
            Err(Interruption::Unclear(detail)) if attempt == ATTEMPTS_MAX => {
                return Err(ProbeError::Store {
                    doing: "writing an object",
                    detail,
                });
            }
            Err(Interruption::Unclear(_)) => session.runtime.sleep(RETRY_DELAY).await,
        }
        attempt += 1;
    }
}

/// An unconditional write, which every store must support.
async fn put(session: &Session<'_>, key: &Path, body: Bytes) -> GroupResult<UpdateVersion> {
    let detail = match session.write(key, body, PutMode::Overwrite).await? {
        WriteReply::Done(tag) => return Ok(tag),
        WriteReply::Unclear(detail) => return Err(Interruption::Unclear(detail)),
        WriteReply::Missing => NO_BUCKET.to_owned(),
        WriteReply::Refused => "the store refuses an unconditional write".to_owned(),
        WriteReply::Unsupported(detail) => detail,
    };
    let doing = "writing an object";
    Err(Interruption::Fatal(ProbeError::Store { doing, detail }))
}

async fn conditions(session: &Session<'_>, attempt: u32) -> GroupResult<Findings> {
    let mut found = Findings::default();
    let key = session.key(&format!("conditions-{attempt}"));
    let missing = session.key(&format!("missing-{attempt}"));
    let Some(first) = create_twice(session, &key, &mut found).await? else {
        return Ok(found);
    };
    let body = Bytes::from_static(b"second");
    let Some(second) = swap(session, &key, &body, &first, &mut found).await? else {
        return Ok(found);
    };

    let other = Bytes::from_static(b"other");
    let (outdated, absent) = try_join(
        session.write(&key, other.clone(), PutMode::Update(first)),
        session.write(&missing, other, PutMode::Update(second.clone())),
    )
    .await?;
    let (kept, ghost) = try_join(session.read(&key), session.read(&missing)).await?;
    let is_kept = kept.is_some_and(|stored| stored.body == body);
    let stale = CheckName::SwapRefusesStaleTag;
    refusal(stale, outdated, is_kept, &mut found)?;
    refusal(
        CheckName::SwapRefusesMissing,
        absent,
        ghost.is_none(),
        &mut found,
    )?;
    if found.has_failed(stale) {
        return Ok(found);
    }

    let equal = session.write(&key, body, PutMode::Update(second.clone()));
    if let WriteReply::Done(tag) = equal.await? {
        let changes = tag.e_tag != second.e_tag;
        found.equal_bytes_change_tag = Some(changes);
        let reason = if changes {
            "rewriting equal bytes changes the tag"
        } else {
            "rewriting equal bytes keeps the tag, which qo's revisions allow for"
        };
        found.pass(CheckName::EqualBytes, reason);
    }
    Ok(found)
}

/// Creates a key twice. Returns the tag of the stored object, or `None` if creates do not work.
async fn create_twice(
    session: &Session<'_>,
    key: &Path,
    found: &mut Findings,
) -> GroupResult<Option<UpdateVersion>> {
    let name = CheckName::CreateRefusesExisting;
    let first = session.write(key, Bytes::from_static(b"first"), PutMode::Create);
    let tag = match first.await? {
        WriteReply::Done(tag) => tag,
        WriteReply::Unclear(detail) => return Err(Interruption::Unclear(detail)),
        WriteReply::Missing => {
            return Err(Interruption::Fatal(ProbeError::Store {
                doing: "writing the first object",
                detail: NO_BUCKET.to_owned(),
            }));
        }
        WriteReply::Refused => {
            found.fail(name, "a create of an unused key was refused");
            return Ok(None);
        }
        WriteReply::Unsupported(detail) => {
            let reason = format!("the store does not support conditional creates: {detail}");
            found.fail(name, reason);
            return Ok(None);
        }
    };
    let again = session.write(key, Bytes::from_static(b"again"), PutMode::Create);
    Ok(Some(match again.await? {
        WriteReply::Refused => {
            found.pass(name, "a create of an existing key is refused");
            tag
        }
        WriteReply::Unclear(detail) => return Err(Interruption::Unclear(detail)),
        WriteReply::Done(replaced) => {
            found.fail(
                name,
                "a create replaced an existing object: If-None-Match is ignored",
            );
            replaced
        }
        WriteReply::Missing | WriteReply::Unsupported(_) => {
            found.fail(
                name,
                "a create of an existing key failed with an unexpected error",
            );
            tag
        }
    }))
}

/// Swaps with the current tag. Returns the new tag, or `None` if swaps do not work.
async fn swap(
    session: &Session<'_>,
    key: &Path,
    body: &Bytes,
    current: &UpdateVersion,
    found: &mut Findings,
) -> GroupResult<Option<UpdateVersion>> {
    let name = CheckName::SwapAcceptsCurrentTag;
    let swap = session.write(key, body.clone(), PutMode::Update(current.clone()));
    match swap.await? {
        WriteReply::Done(tag) if tag == *current => {
            found.fail(name, "a swap changed the bytes but not the tag");
        }
        WriteReply::Done(tag) => {
            found.pass(
                name,
                "a swap with the current tag succeeds and changes the tag",
            );
            return Ok(Some(tag));
        }
        WriteReply::Unclear(detail) => return Err(Interruption::Unclear(detail)),
        WriteReply::Refused | WriteReply::Missing => {
            found.fail(
                name,
                "a swap with the tag that the last write returned was refused",
            );
        }
        WriteReply::Unsupported(detail) => {
            let reason = format!("the store does not support conditional swaps: {detail}");
            found.fail(name, reason);
        }
    }
    Ok(None)
}

/// Records whether a swap was refused as required and changed nothing.
fn refusal(
    name: CheckName,
    reply: WriteReply,
    is_unharmed: bool,
    found: &mut Findings,
) -> GroupResult<()> {
    match reply {
        WriteReply::Refused | WriteReply::Missing if is_unharmed => {
            let reason = if name == CheckName::SwapRefusesMissing {
                "a swap of a missing object is refused and creates nothing"
            } else {
                "a swap with an outdated tag is refused and changes nothing"
            };
            found.pass(name, reason);
        }
        WriteReply::Refused | WriteReply::Missing => {
            found.fail(name, "a swap was refused, but the object changed");
        }
        WriteReply::Done(_) if name == CheckName::SwapRefusesMissing => {
            found.fail(name, "a swap created a missing object: If-Match is ignored");
        }
        WriteReply::Done(_) => {
            let reason = "a swap with an outdated tag replaced a newer object: If-Match is ignored";
            found.fail(name, reason);
        }
        WriteReply::Unclear(detail) => return Err(Interruption::Unclear(detail)),
        WriteReply::Unsupported(detail) => {
            found.fail(
                name,
                format!("a swap failed with an unexpected error: {detail}"),
            );
        }
    }
    Ok(())
}

async fn listing(session: &Session<'_>, attempt: u32) -> GroupResult<Findings> {
    let mut found = Findings::default();
    let directory = session.directory.clone().join(format!("listing-{attempt}"));
    let keys = ["a", "b", "c"].map(|name| session.key(&format!("listing-{attempt}/{name}")));
    let body = Bytes::from_static(b"listed");
    try_join3(
        put(session, &keys[0], body.clone()),
        put(session, &keys[1], body.clone()),
        put(session, &keys[2], body),
    )
    .await?;

    let list = CheckName::ListIsCurrent;
    let listed = session.list(&directory).await?;
    let latest = listed
        .iter()
        .map(|meta| meta.last_modified.timestamp_millis());
    found.store_time = latest.max().map(Timestamp::from_millis);
    let shown: BTreeSet<&Path> = listed.iter().map(|meta| &meta.location).collect();
    if !keys.iter().all(|key| shown.contains(key)) {
        found.fail(list, "a list omits an object that was just written");
    }

    let batch = CheckName::BatchDelete;
    if let Err(error) = session.delete(&keys).await {
        if is_denied(&error) {
            let doing = "deleting objects (s3:DeleteObject on AWS)";
            return Err(ProbeError::store(doing, &error).into());
        }
        found.fail(
            batch,
            format!(
                "deleting three objects in one request failed: {}",
                describe(&error)
            ),
        );
        return Ok(found);
    }
    let (listed, remains) = try_join(session.list(&directory), session.read(&keys[0])).await?;
    if remains.is_some() {
        found.fail(batch, "an object can still be read after it was deleted");
        return Ok(found);
    }
    found.pass(batch, "objects deleted in one request are gone");
    if !listed.is_empty() {
        found.fail(list, "a list includes an object that was just deleted");
    }
    if !found.has_failed(list) {
        found.pass(list, "lists include new objects and omit deleted ones");
    }
    Ok(found)
}

async fn conditional_get(session: &Session<'_>, attempt: u32) -> GroupResult<Findings> {
    let mut found = Findings::default();
    let name = CheckName::ConditionalGet;
    let key = session.key(&format!("get-{attempt}"));
    let Some(tag) = put(session, &key, Bytes::from_static(b"old")).await?.e_tag else {
        found.fail(name, "the store returns no ETag");
        return Ok(found);
    };
    let options = GetOptions::new().with_if_none_match(Some(tag));
    let unchanged = session.read_if(&key, &options).await;
    put(session, &key, Bytes::from_static(b"new")).await?;
    let changed = session.read_if(&key, &options).await;
    // A hidden change is fatal, because an idle worker would never wake up.
    let hidden = |reason: &str| Check {
        required: true,
        ..Check::failed(name, reason)
    };
    match (unchanged, changed) {
        (_, Err(Error::NotModified { .. })) => {
            let reason = "the store returns 'not modified' for a replaced object";
            found.checks.push(hidden(reason));
        }
        (_, Ok(stored)) if stored.body != "new" => {
            let reason = "a read returns older bytes than the last write";
            found.checks.push(hidden(reason));
        }
        (Err(Error::NotModified { .. }), Ok(_)) => {
            found.pass(name, "conditional reads work");
        }
        (Ok(_), Ok(_)) => {
            let reason =
                "the store sends unchanged objects again, which makes idle workers more expensive";
            found.fail(name, reason);
        }
        (Err(error), Ok(_)) | (_, Err(error)) => {
            let detail = describe(&error);
            found.fail(name, format!("a conditional read failed: {detail}"));
        }
    }
    Ok(found)
}
