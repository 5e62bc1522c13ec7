//! Versions, versioning, CORS and lifecycle rules of an S3 bucket.
//!
//! Requests are signed with the signer of `object_store` and use the same HTTP layer as object requests.

mod browser;
mod encoding;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod lifecycle;
mod request;
mod xml;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use object_store::aws::AwsCredentialProvider;
use object_store::client::HttpClient;
use object_store::path::Path as ObjectPath;

use self::request::{AdminReply, AdminRequest};
use self::xml::VersionEntry;
use crate::admin::{
    BucketAdmin, CorsRule, KeyedVersion, KeyedVersionList, LifecycleRule, VersionList, Versioning,
};
use crate::browser::{BrowserCredentials, BucketLocation, SessionRequest};
use crate::error::StoreError;
use crate::runtime::Runtime;

/// The maximum number of versions in one page.
const MAX_PAGE: usize = 1000;

/// The settings of the administration of a bucket.
pub(crate) struct S3AdminSettings {
    pub(crate) client: HttpClient,
    pub(crate) credentials: AwsCredentialProvider,
    pub(crate) region: String,
    pub(crate) bucket: String,
    /// The base URL of the bucket. Append a slash and a key.
    pub(crate) bucket_url: String,
    pub(crate) prefix: ObjectPath,
    pub(crate) runtime: Arc<dyn Runtime>,
}

impl S3AdminSettings {
    fn full_key(&self, key: &str) -> String {
        if self.prefix.as_ref().is_empty() {
            key.to_owned()
        } else {
            format!("{}/{key}", self.prefix)
        }
    }

    /// The key without the store's prefix, if it has the prefix.
    fn without_prefix<'a>(&self, key: &'a str) -> Option<&'a str> {
        if self.prefix.as_ref().is_empty() {
            return Some(key);
        }
        key.strip_prefix(self.prefix.as_ref())?.strip_prefix('/')
    }
}

/// The administration of one bucket.
pub struct S3Admin {
    settings: S3AdminSettings,
}

impl fmt::Debug for S3Admin {
    /// Omits the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Admin")
            .field("bucket", &self.settings.bucket)
            .field("prefix", &self.settings.prefix.as_ref())
            .finish_non_exhaustive()
    }
}

impl S3Admin {
    pub(crate) fn new(settings: S3AdminSettings) -> Self {
        Self { settings }
    }

    /// Reads a bucket setting as XML. `None` if the store reports with the code `absent` that it is not set.
    async fn setting(
        &self,
        name: &'static str,
        operation: &'static str,
        absent: &str,
    ) -> Result<Option<Bytes>, StoreError> {
        let request = AdminRequest {
            method: Method::GET,
            key: "",
            query: &[(name, "")],
            body: None,
            operation,
        };
        match self.settings.send(&request).await? {
            AdminReply::Body(body) => Ok(Some(body)),
            AdminReply::Refused { code, .. } if code == absent => Ok(None),
            AdminReply::Refused { status, code } => Err(self.refused(operation, status, &code)),
        }
    }

    /// The first `limit` versions below a full prefix, by key, newest first within a key, and whether there are more.
    /// The list ends before the first entry that is not wanted.
    async fn version_entries(
        &self,
        full_prefix: &str,
        limit: usize,
        is_wanted: impl Fn(&VersionEntry) -> bool + Send,
    ) -> Result<(Vec<VersionEntry>, bool), StoreError> {
        const OPERATION: &str = "listing versions";
        let mut found: Vec<VersionEntry> = Vec::new();
        let mut marker: Option<(String, String)> = None;
        // One more than requested shows whether there are more.
        let wanted = limit.saturating_add(1);
        while found.len() < wanted {
            let page_size = (wanted - found.len()).min(MAX_PAGE).to_string();
            let mut query = vec![("encoding-type", "url"), ("max-keys", &page_size)];
            if let Some((key_marker, version_marker)) = &marker {
                query.push(("key-marker", key_marker));
                if !version_marker.is_empty() {
                    query.push(("version-id-marker", version_marker));
                }
            }
            query.push(("prefix", full_prefix));
            query.push(("versions", ""));
            let request = AdminRequest {
                method: Method::GET,
                key: "",
                query: &query,
                body: None,
                operation: OPERATION,
            };
            let body = match self.settings.send(&request).await? {
                AdminReply::Body(body) => body,
                AdminReply::Refused { status, code } => {
                    return Err(self.refused(OPERATION, status, &code));
                }
            };
            let page =
                xml::parse_versions(&body).ok_or_else(|| self.damaged("the list of versions"))?;
            let listed = page.entries.len();
            let before = found.len();
            found.extend(page.entries.into_iter().filter(&is_wanted));
            let is_end = found.len() - before < listed;
            let next = page.next.filter(|next| Some(next) != marker.as_ref());
            if is_end || next.is_none() {
                break;
            }
            marker = next;
        }
        // Some servers list delete markers separately. The sort is stable, so equal times keep the server's
        // order.
        found.sort_by(|one, other| {
            let rank = |entry: &VersionEntry| {
                let version = &entry.version;
                std::cmp::Reverse((version.is_latest, version.last_modified))
            };
            one.key
                .cmp(&other.key)
                .then_with(|| rank(one).cmp(&rank(other)))
        });
        let truncated = found.len() > limit;
        found.truncate(limit);
        Ok((found, truncated))
    }

    /// Writes a bucket setting, or removes it if there is no document.
    async fn put_setting(
        &self,
        name: &'static str,
        operation: &'static str,
        document: Option<String>,
    ) -> Result<(), StoreError> {
        let request = AdminRequest {
            method: if document.is_some() {
                Method::PUT
            } else {
                Method::DELETE
            },
            key: "",
            query: &[(name, "")],
            body: document,
            operation,
        };
        match self.settings.send(&request).await? {
            AdminReply::Body(_) => Ok(()),
            AdminReply::Refused { status, code } => Err(self.refused(operation, status, &code)),
        }
    }

    /// The error for a 404 or 405 about the bucket itself.
    fn refused(&self, operation: &'static str, status: u16, code: &str) -> StoreError {
        if code == "NoSuchBucket" {
            return StoreError::NotFound {
                key: self.settings.name_of(""),
            };
        }
        StoreError::Unsupported {
            operation,
            detail: format!("the store returned {status} {code}"),
        }
    }

    fn damaged(&self, what: &str) -> StoreError {
        StoreError::Corrupt {
            key: self.settings.name_of(""),
            detail: format!("the store sent {what} in an unexpected format"),
        }
    }
}

#[async_trait]
impl BucketAdmin for S3Admin {
    fn browser_location(&self) -> Option<BucketLocation> {
        Some(self.location())
    }

    async fn own_credentials(&self) -> Result<BrowserCredentials, StoreError> {
        self.signing_credentials().await
    }

    async fn browser_session(
        &self,
        request: &SessionRequest,
    ) -> Result<BrowserCredentials, StoreError> {
        self.create_session(request).await
    }

    async fn publish(&self, folder: &str) -> Result<bool, StoreError> {
        self.make_readable(folder).await
    }

    async fn list_versions(&self, key: &str, limit: usize) -> Result<VersionList, StoreError> {
        // A key sorts before all keys that it is a prefix of, so another key marks the end of its versions.
        let full_key = self.settings.full_key(key);
        let (found, truncated) = self
            .version_entries(&full_key, limit, |entry| entry.key == full_key)
            .await?;
        Ok(VersionList {
            versions: found.into_iter().map(|entry| entry.version).collect(),
            truncated,
        })
    }

    async fn list_versions_below(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<KeyedVersionList, StoreError> {
        let full_prefix = self.settings.full_key(prefix);
        let (found, truncated) = self.version_entries(&full_prefix, limit, |_| true).await?;
        let versions = found.into_iter().filter_map(|entry| {
            Some(KeyedVersion {
                key: self.settings.without_prefix(&entry.key)?.to_owned(),
                version: entry.version,
            })
        });
        Ok(KeyedVersionList {
            versions: versions.collect(),
            truncated,
        })
    }

    async fn get_version(&self, key: &str, version: &str) -> Result<Bytes, StoreError> {
        let request = AdminRequest {
            method: Method::GET,
            key: &self.settings.full_key(key),
            query: &[("versionId", version)],
            body: None,
            operation: "getting a version",
        };
        match self.settings.send(&request).await? {
            AdminReply::Body(body) => Ok(body),
            // A read of a delete marker, which has no bytes, returns 405.
            AdminReply::Refused { .. } => Err(StoreError::NotFound {
                key: format!("{key} version {version}"),
            }),
        }
    }

    async fn delete_version(&self, key: &str, version: &str) -> Result<(), StoreError> {
        const OPERATION: &str = "deleting a version";
        let request = AdminRequest {
            method: Method::DELETE,
            key: &self.settings.full_key(key),
            query: &[("versionId", version)],
            body: None,
            operation: OPERATION,
        };
        match self.settings.send(&request).await? {
            AdminReply::Body(_) => Ok(()),
            AdminReply::Refused { status: 404, code } if code != "NoSuchBucket" => Ok(()),
            AdminReply::Refused { status, code } => Err(self.refused(OPERATION, status, &code)),
        }
    }

    async fn versioning(&self) -> Result<Versioning, StoreError> {
        let body = self
            .setting("versioning", "reading versioning", "")
            .await?
            .unwrap_or_default();
        xml::parse_versioning(&body).ok_or_else(|| self.damaged("the versioning"))
    }

    async fn set_versioning(&self, versioning: Versioning) -> Result<(), StoreError> {
        // S3 cannot return to 'never enabled', and writing 'suspended' to a bucket that never had versioning
        // would be misleading.
        if versioning == Versioning::Off && self.versioning().await? == Versioning::Off {
            return Ok(());
        }
        self.put_setting(
            "versioning",
            "switching versioning",
            Some(xml::write_versioning(versioning)),
        )
        .await
    }

    async fn cors(&self) -> Result<Vec<CorsRule>, StoreError> {
        match self
            .setting("cors", "reading CORS rules", "NoSuchCORSConfiguration")
            .await?
        {
            None => Ok(Vec::new()),
            Some(body) => xml::parse_cors(&body).ok_or_else(|| self.damaged("the CORS rules")),
        }
    }

    async fn set_cors(&self, rules: &[CorsRule]) -> Result<(), StoreError> {
        let document = (!rules.is_empty()).then(|| xml::write_cors(rules));
        self.put_setting("cors", "setting CORS rules", document)
            .await
    }

    async fn lifecycle(&self) -> Result<Vec<LifecycleRule>, StoreError> {
        Ok(self
            .stored_lifecycle()
            .await?
            .into_iter()
            .filter_map(|rule| {
                lifecycle::under_prefix(rule.parsed?, |prefix| {
                    self.settings.without_prefix(prefix).map(str::to_owned)
                })
            })
            .collect())
    }

    /// Replaces the rules that [`S3Admin::lifecycle`] returns. Other rules stay unless one with the same id is
    /// given: rules that qo cannot express, such as transitions to colder storage, and rules for keys outside the
    /// store's prefix. A crash between the read and the write leaves the rules unchanged.
    async fn set_lifecycle(&self, rules: &[LifecycleRule]) -> Result<(), StoreError> {
        let kept: Vec<String> = self
            .stored_lifecycle()
            .await?
            .into_iter()
            .filter(|stored| {
                let is_shown = stored
                    .parsed
                    .as_ref()
                    .is_some_and(|rule| self.settings.without_prefix(&rule.prefix).is_some());
                !is_shown
                    && !rules
                        .iter()
                        .any(|rule| Some(&rule.id) == stored.id.as_ref())
            })
            .map(|stored| stored.xml)
            .collect();
        let full: Vec<LifecycleRule> = rules
            .iter()
            .map(|rule| LifecycleRule {
                prefix: self.settings.full_key(&rule.prefix),
                ..rule.clone()
            })
            .collect();
        let document =
            (!full.is_empty() || !kept.is_empty()).then(|| lifecycle::write(&full, &kept));
        self.put_setting("lifecycle", "setting lifecycle rules", document)
            .await
    }
}

impl S3Admin {
    async fn stored_lifecycle(&self) -> Result<Vec<lifecycle::StoredRule>, StoreError> {
        match self
            .setting(
                "lifecycle",
                "reading lifecycle rules",
                "NoSuchLifecycleConfiguration",
            )
            .await?
        {
            None => Ok(Vec::new()),
            Some(body) => {
                lifecycle::parse(&body).ok_or_else(|| self.damaged("the lifecycle rules"))
            }
        }
    }
}
