//! Versions of a store in tests, as objects below `.versions/`.
//!
//! A store in a test that keeps versions shows each of them as an object with a key of its own, and removes a version when that object
//! is deleted. [`VersionKeys`] is the [`BucketAdmin`] of such a store. Its requests are ordinary reads, lists and deletes, so they meet
//! the same faults and delays as all other requests.

use async_trait::async_trait;
use bytes::Bytes;

use crate::admin::{
    BucketAdmin, KeyedVersion, KeyedVersionList, ObjectVersion, VersionList, Versioning,
    no_settings,
};
use crate::client::{PAGE_LIMIT_MAX, StoreClient};
use crate::error::StoreError;

/// The prefix of the keys of versions.
pub const VERSIONS_PREFIX: &str = ".versions";

/// A version in its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionKey {
    /// The key of the object.
    pub key: String,
    /// The number of the version. Later versions have higher numbers.
    pub number: u64,
    /// Whether it is a delete marker.
    pub is_delete_marker: bool,
}

impl VersionKey {
    /// The key of the version.
    pub fn to_key(&self) -> String {
        let kind = if self.is_delete_marker { 'd' } else { 'v' };
        format!("{VERSIONS_PREFIX}/{}/{:012}{kind}", self.key, self.number)
    }

    /// Parses the key of a version.
    pub fn parse(key: &str) -> Option<Self> {
        let rest = key.strip_prefix(VERSIONS_PREFIX)?.strip_prefix('/')?;
        let (key, name) = rest.rsplit_once('/')?;
        let (number, is_delete_marker) = match name.strip_suffix('d') {
            Some(number) => (number, true),
            None => (name.strip_suffix('v')?, false),
        };
        Some(Self {
            key: key.to_owned(),
            number: number.parse().ok()?,
            is_delete_marker,
        })
    }
}

/// The administration of a store that shows its versions below [`VERSIONS_PREFIX`].
#[derive(Debug)]
pub struct VersionKeys {
    client: StoreClient,
}

impl VersionKeys {
    /// The administration of the store of `client`.
    pub fn new(client: StoreClient) -> Self {
        Self { client }
    }

    /// All versions below a prefix, by key, newest first within a key.
    async fn versions_below(&self, prefix: &str) -> Result<Vec<KeyedVersion>, StoreError> {
        let folder = format!("{VERSIONS_PREFIX}/{}", prefix.trim_end_matches('/'));
        let mut found: Vec<(VersionKey, ObjectVersion)> = Vec::new();
        let mut after = None;
        loop {
            let page = self
                .client
                .page(&folder, after.as_deref(), PAGE_LIMIT_MAX)
                .await?;
            for entry in page.entries {
                let Some(key) = VersionKey::parse(&entry.key) else {
                    continue;
                };
                let version = ObjectVersion {
                    version: entry.key,
                    last_modified: entry.last_modified,
                    is_latest: false,
                    is_delete_marker: key.is_delete_marker,
                    size: 0,
                    e_tag: None,
                };
                found.push((key, version));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        found.sort_by(|(one, _), (other, _)| {
            one.key.cmp(&other.key).then(other.number.cmp(&one.number))
        });
        let mut versions: Vec<KeyedVersion> = Vec::new();
        for (VersionKey { key, .. }, mut version) in found {
            version.is_latest = versions.last().is_none_or(|last| last.key != key);
            versions.push(KeyedVersion { key, version });
        }
        Ok(versions)
    }
}

#[async_trait]
impl BucketAdmin for VersionKeys {
    async fn list_versions(&self, key: &str, limit: usize) -> Result<VersionList, StoreError> {
        let found = self.versions_below(key).await?.into_iter();
        let mut versions: Vec<_> = found
            .filter(|found| found.key == key)
            .map(|found| found.version)
            .collect();
        let truncated = versions.len() > limit;
        versions.truncate(limit);
        Ok(VersionList {
            versions,
            truncated,
        })
    }

    async fn list_versions_below(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<KeyedVersionList, StoreError> {
        let mut versions = self.versions_below(prefix).await?;
        let truncated = versions.len() > limit;
        versions.truncate(limit);
        Ok(KeyedVersionList {
            versions,
            truncated,
        })
    }

    async fn get_version(&self, _key: &str, version: &str) -> Result<Bytes, StoreError> {
        Ok(self.client.get(version).await?.body)
    }

    async fn delete_version(&self, _key: &str, version: &str) -> Result<(), StoreError> {
        match self.client.delete_many(&[version.to_owned()]).await {
            Ok(()) => Ok(()),
            Err(mut failures) => failures
                .failed
                .pop()
                .map_or(Ok(()), |(_, error)| Err(error)),
        }
    }

    async fn versioning(&self) -> Result<Versioning, StoreError> {
        Ok(Versioning::On)
    }

    async fn set_versioning(&self, _versioning: Versioning) -> Result<(), StoreError> {
        no_settings("switching versioning")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_version_round_trips() {
        for is_delete_marker in [false, true] {
            let version = VersionKey {
                key: "tasks/0/a.json".to_owned(),
                number: 17,
                is_delete_marker,
            };
            assert_eq!(VersionKey::parse(&version.to_key()), Some(version));
        }
        assert_eq!(VersionKey::parse("tasks/0/a.json"), None);
    }
}
