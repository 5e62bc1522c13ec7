//! One page of a listing in key order, with one LIST request.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use object_store::path::Path;
use qo_core::Timestamp;

use super::classify::Failure;
use super::tag::Tag;
use super::{StoreClient, bad_key};
use crate::error::StoreError;

/// The maximum number of entries in a page: the number that one LIST request returns on S3.
pub const PAGE_LIMIT_MAX: usize = 1_000;

/// An object in a listing.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// Identifies this state of the object. See [`Tag`] for the limits of tags from listings.
    pub tag: Tag,
    /// When it was written, by the store's clock.
    pub last_modified: Timestamp,
}

/// One page of a listing.
#[derive(Debug, Clone)]
pub struct Page {
    /// The entries, in key order.
    pub entries: Vec<Entry>,
    /// The `after` of the next page, if there may be one.
    pub next: Option<String>,
}

/// The parameters of a listing.
struct Listing<'a> {
    prefix: Option<Path>,
    /// The prefix with a trailing slash. Every key in the listing starts with it.
    folder: String,
    /// Keys up to and including this one are excluded.
    after: Option<&'a str>,
    /// The offset sent to the store.
    offset: Option<Path>,
    limit: usize,
}

pub(super) async fn page(
    client: &StoreClient,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Page, StoreError> {
    let prefix_path = Path::parse(prefix).map_err(|error| bad_key(prefix, &error.to_string()))?;
    let folder = if prefix_path.is_root() {
        String::new()
    } else {
        format!("{prefix_path}/")
    };
    // An `after` that sorts before every key of the prefix excludes nothing. It is not sent, because SeaweedFS
    // 4.47 would then list nothing, or keys outside the prefix.
    let after = after.filter(|after| *after > folder.as_str());
    if let Some(after) = after
        && !after.starts_with(&folder)
    {
        // It sorts after every key of the prefix.
        return Ok(Page {
            entries: Vec::new(),
            next: None,
        });
    }
    let offset = after
        .map(|after| Path::parse(after).map_err(|error| bad_key(after, &error.to_string())))
        .transpose()?
        .filter(|offset| offset.as_ref() > folder.as_str());
    let listing = Listing {
        prefix: (!prefix_path.is_root()).then_some(prefix_path),
        folder,
        after,
        offset,
        limit: limit.clamp(1, PAGE_LIMIT_MAX),
    };
    client
        .retrying("page", prefix, false, |timeout| {
            page_once(client, timeout, &listing)
        })
        .await
}

async fn page_once(
    client: &StoreClient,
    timeout: Duration,
    listing: &Listing<'_>,
) -> Result<Page, Failure> {
    let prefix = listing.prefix.as_ref();
    let stream = match &listing.offset {
        Some(offset) => client.objects().list_with_offset(prefix, offset),
        None => client.objects().list(prefix),
    };
    let metas: Vec<ObjectMeta> = client
        .with_timeout(
            timeout,
            stream
                .map_err(|error| Failure::of(&error))
                .try_take_while(|meta| std::future::ready(Ok(!listing.is_past(meta))))
                .try_filter(|meta| std::future::ready(listing.includes(meta)))
                .take(listing.limit)
                .try_collect(),
        )
        .await??;
    let ordered = metas
        .windows(2)
        .all(|pair| pair[0].location < pair[1].location);
    if !ordered {
        return Err(Failure::Unsupported(
            "the store does not list keys in order (S3 directory buckets do not)".to_owned(),
        ));
    }
    let next = metas
        .last()
        .filter(|_| metas.len() == listing.limit)
        .map(|meta| meta.location.to_string());
    let entries = metas
        .into_iter()
        .map(entry)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Page { entries, next })
}

impl Listing<'_> {
    /// Whether this key sorts after all keys of the prefix. The listing ends there, even if the store continues
    /// through the whole bucket.
    fn is_past(&self, meta: &ObjectMeta) -> bool {
        let key = meta.location.as_ref();
        key > self.folder.as_str() && !key.starts_with(&self.folder)
    }

    fn includes(&self, meta: &ObjectMeta) -> bool {
        let key = meta.location.as_ref();
        key.starts_with(&self.folder) && self.after.is_none_or(|after| key > after)
    }
}

fn entry(meta: ObjectMeta) -> Result<Entry, Failure> {
    let tag = Tag::of_meta(&meta)
        .ok_or_else(|| Failure::Unsupported("the store returns no ETags in listings".to_owned()))?;
    Ok(Entry {
        key: meta.location.into(),
        size: meta.size,
        tag,
        last_modified: Timestamp::from_millis(meta.last_modified.timestamp_millis()),
    })
}
