//! What a single caller can find out: whether conditions are honoured at all, and whether lists and deletes tell the truth.
//!
//! Each part works on fresh keys. An unclear answer (a 5xx, silence, 'try again') proves nothing either way, so the part is
//! made again from the start, with other keys, a few times.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{try_join, try_join3};
use object_store::path::Path;
use object_store::{Error, GetOptions, PutMode, UpdateVersion};
use qo_core::Timestamp;

use super::ProbeError;
use super::session::{Answer, Session, describe};
use super::verdict::{Check, CheckName};

/// How often a part is made before an unclear answer counts as the store's failure.
const ATTEMPTS_MAX: u32 = 8;

/// How long to wait before a part is made again.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// What a 404 to a write means.
const NO_BUCKET: &str = "there is no such bucket";

/// What the parts found.
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
            .any(|check| check.name == name && check.outcome == super::Outcome::Failed)
    }
}

/// Why a part ended early.
enum Interruption {
    Unclear(String),
    Fatal(ProbeError),
}

impl From<ProbeError> for Interruption {
    fn from(error: ProbeError) -> Self {
        Self::Fatal(error)
    }
}

type Part<T> = Result<T, Interruption>;

#[derive(Clone, Copy)]
enum Kind {
    Conditions,
    Listing,
    ConditionalGet,
}

/// Makes all parts at once; they share no key.
pub(super) async fn single_caller(session: &Session<'_>) -> Result<Findings, ProbeError> {
    let (mut all, listing, get) = try_join3(
        settle(session, Kind::Conditions),
        settle(session, Kind::Listing),
        settle(session, Kind::ConditionalGet),
    )
    .await?;
    all.store_time = listing.store_time;
    all.checks.extend(listing.checks);
    all.checks.extend(get.checks);
    Ok(all)
}

async fn settle(session: &Session<'_>, kind: Kind) -> Result<Findings, ProbeError> {
    let mut attempt = 1;
    loop {
        let found = match kind {
            Kind::Conditions => Box::pin(conditions(session, attempt)).await,
            Kind::Listing => Box::pin(listing(session, attempt)).await,
            Kind::ConditionalGet => Box::pin(conditional_get(session, attempt)).await,
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

/// A plain write, which every store must be able to do.
async fn put(session: &Session<'_>, key: &Path, body: Bytes) -> Part<UpdateVersion> {
    let detail = match session.write(key, body, PutMode::Overwrite).await? {
        Answer::Done(tag) => return Ok(tag),
        Answer::Unclear(detail) => return Err(Interruption::Unclear(detail)),
        Answer::Missing => NO_BUCKET.to_owned(),
        Answer::Refused => "the store refuses a write that has no condition".to_owned(),
        Answer::Unsupported(detail) => detail,
    };
    let doing = "writing an object";
    Err(Interruption::Fatal(ProbeError::Store { doing, detail }))
}

async fn conditions(session: &Session<'_>, attempt: u32) -> Part<Findings> {
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
    if let Answer::Done(tag) = equal.await? {
        let changes = tag.e_tag != second.e_tag;
        found.equal_bytes_change_tag = Some(changes);
        let reason = if changes {
            "equal bytes written again get another tag"
        } else {
            "equal bytes written again keep their tag, which qo's revisions allow for"
        };
        found.pass(CheckName::EqualBytes, reason);
    }
    Ok(found)
}

/// Creates a key and then again. The tag of what is stored, unless creates do not work at all.
async fn create_twice(
    session: &Session<'_>,
    key: &Path,
    found: &mut Findings,
) -> Part<Option<UpdateVersion>> {
    let name = CheckName::CreateRefusesExisting;
    let first = session.write(key, Bytes::from_static(b"first"), PutMode::Create);
    let tag = match first.await? {
        Answer::Done(tag) => tag,
        Answer::Unclear(detail) => return Err(Interruption::Unclear(detail)),
        Answer::Missing => {
            return Err(Interruption::Fatal(ProbeError::Store {
                doing: "writing the first object",
                detail: NO_BUCKET.to_owned(),
            }));
        }
        Answer::Refused => {
            found.fail(name, "a create of a key that nobody ever used was refused");
            return Ok(None);
        }
        Answer::Unsupported(detail) => {
            let reason = format!("the store does not do creates under a condition: {detail}");
            found.fail(name, reason);
            return Ok(None);
        }
    };
    let again = session.write(key, Bytes::from_static(b"again"), PutMode::Create);
    Ok(Some(match again.await? {
        Answer::Refused => {
            found.pass(name, "a create of an existing key is refused");
            tag
        }
        Answer::Unclear(detail) => return Err(Interruption::Unclear(detail)),
        Answer::Done(replaced) => {
            found.fail(
                name,
                "a create replaced an existing object: If-None-Match is ignored",
            );
            replaced
        }
        Answer::Missing | Answer::Unsupported(_) => {
            found.fail(
                name,
                "a create of an existing key failed in a way that means nothing",
            );
            tag
        }
    }))
}

/// Swaps with the current tag. The new tag, unless swaps do not work at all.
async fn swap(
    session: &Session<'_>,
    key: &Path,
    body: &Bytes,
    current: &UpdateVersion,
    found: &mut Findings,
) -> Part<Option<UpdateVersion>> {
    let name = CheckName::SwapAcceptsCurrentTag;
    let swap = session.write(key, body.clone(), PutMode::Update(current.clone()));
    match swap.await? {
        Answer::Done(tag) if tag == *current => {
            found.fail(name, "a swap changed the bytes but not the tag");
        }
        Answer::Done(tag) => {
            found.pass(
                name,
                "a swap with the current tag is done and changes the tag",
            );
            return Ok(Some(tag));
        }
        Answer::Unclear(detail) => return Err(Interruption::Unclear(detail)),
        Answer::Refused | Answer::Missing => {
            found.fail(
                name,
                "a swap with the tag that the last write returned was refused",
            );
        }
        Answer::Unsupported(detail) => {
            let reason = format!("the store does not do swaps under a condition: {detail}");
            found.fail(name, reason);
        }
    }
    Ok(None)
}

/// Notes whether a swap that must be refused was, and changed nothing.
fn refusal(name: CheckName, answer: Answer, is_unharmed: bool, found: &mut Findings) -> Part<()> {
    match answer {
        Answer::Refused | Answer::Missing if is_unharmed => {
            let reason = if name == CheckName::SwapRefusesMissing {
                "a swap where nothing is is refused and makes nothing"
            } else {
                "a swap with an outdated tag is refused and changes nothing"
            };
            found.pass(name, reason);
        }
        Answer::Refused | Answer::Missing => {
            found.fail(
                name,
                "a swap was refused, and yet what is stored is not what was there",
            );
        }
        Answer::Done(_) if name == CheckName::SwapRefusesMissing => {
            found.fail(
                name,
                "a swap made an object where none was: If-Match is ignored",
            );
        }
        Answer::Done(_) => {
            let reason = "a swap with an outdated tag replaced a newer object: If-Match is ignored";
            found.fail(name, reason);
        }
        Answer::Unclear(detail) => return Err(Interruption::Unclear(detail)),
        Answer::Unsupported(detail) => {
            found.fail(
                name,
                format!("a swap failed in a way that means nothing: {detail}"),
            );
        }
    }
    Ok(())
}

async fn listing(session: &Session<'_>, attempt: u32) -> Part<Findings> {
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
        found.fail(list, "a list does not show an object that was just written");
    }

    let batch = CheckName::BatchDelete;
    if let Err(error) = session.delete(&keys).await {
        found.fail(
            batch,
            format!(
                "deleting three objects at once failed: {}",
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
    found.pass(batch, "objects deleted at once are gone");
    if !listed.is_empty() {
        found.fail(list, "a list still shows an object that was just deleted");
    }
    if !found.has_failed(list) {
        found.pass(
            list,
            "a list shows what was just written and not what was just deleted",
        );
    }
    Ok(found)
}

async fn conditional_get(session: &Session<'_>, attempt: u32) -> Part<Findings> {
    let mut found = Findings::default();
    let name = CheckName::ConditionalGet;
    let key = session.key(&format!("get-{attempt}"));
    let Some(tag) = put(session, &key, Bytes::from_static(b"old")).await?.e_tag else {
        found.fail(name, "the store names no tag for what it stores");
        return Ok(found);
    };
    let options = GetOptions::new().with_if_none_match(Some(tag));
    let unchanged = session.read_if(&key, &options).await;
    put(session, &key, Bytes::from_static(b"new")).await?;
    let changed = session.read_if(&key, &options).await;
    // To hide a change is not a missing convenience: an idle worker would never wake.
    let hidden = |reason: &str| Check {
        required: true,
        ..Check::failed(name, reason)
    };
    match (unchanged, changed) {
        (_, Err(Error::NotModified { .. })) => {
            let reason = "the store says 'not modified' of an object that was replaced";
            found.checks.push(hidden(reason));
        }
        (_, Ok(stored)) if stored.body != "new" => {
            let reason = "a read returns older bytes than the last write stored";
            found.checks.push(hidden(reason));
        }
        (Err(Error::NotModified { .. }), Ok(_)) => {
            found.pass(name, "a read can ask for changes alone");
        }
        (Ok(_), Ok(_)) => {
            let reason =
                "the store sends an unchanged object again, which makes an idle worker dearer";
            found.fail(name, reason);
        }
        (Err(error), Ok(_)) | (_, Err(error)) => {
            let detail = describe(&error);
            found.fail(
                name,
                format!("a read that asks for changes alone fails: {detail}"),
            );
        }
    }
    Ok(found)
}
