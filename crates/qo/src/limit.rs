//! Limits: how many tasks run at once, and how many start within a time window.
//!
//! ```
//! use qo::{Limit, StartLimit};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (queue, _clock) = qo::testing::memory_queue()?;
//! let limit = Limit {
//!     limit_key: Some("stripe".parse()?),
//!     concurrent: Some(5),
//!     starts: Some(StartLimit { max: 100, window_ms: 60_000 }),
//!     ..Limit::default()
//! };
//! queue.limits().put("stripe", limit).await?;
//! queue.task("charge", &17)?.limit_key("stripe").submit().await?;
//! # Ok(())
//! # }
//! ```

use qo_core::{DocumentKind, DocumentName, Limit, LimitUsage, Timestamp};
use qo_engine::api::Document;
use serde::Serialize;

use crate::error::Error;
use crate::named_documents::{Decision, NamedDocuments};
use crate::queue::Queue;

/// The limits of a queue, from [`Queue::limits`].
#[derive(Debug, Clone)]
pub struct Limits {
    documents: NamedDocuments,
}

/// A limit with its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitInfo {
    /// Its name.
    pub name: DocumentName,
    /// What it applies to, and its bounds.
    #[serde(flatten)]
    pub limit: Limit,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// What is used of it, if it was listed or read; not after a change of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<LimitUsage>,
}

impl Queue {
    /// The limits of this queue.
    pub fn limits(&self) -> Limits {
        Limits {
            documents: NamedDocuments {
                queue: self.clone(),
                kind: DocumentKind::Limits,
            },
        }
    }
}

impl Limits {
    /// Creates a limit, or replaces the one with this name. Running tasks continue, even if there are more of them than allowed.
    pub async fn put(&self, name: &str, limit: Limit) -> Result<LimitInfo, Error> {
        let name = DocumentName::new(name)?;
        let body = limit.to_json()?;
        Limit::parse(&body)?;
        let putting = self.documents.change(&name, |known| {
            let is_same = |known: &Document| Limit::read(&known.body).as_ref() == Ok(&limit);
            Ok(match known.filter(is_same) {
                Some(known) => Decision::Keep(known),
                None => Decision::Write(Some(body.clone()), Vec::new()),
            })
        });
        let written = putting.await?;
        written.as_ref().map_or_else(|| Err(no_limit(&name)), info)
    }

    /// All limits, ordered by name, with what is used of them. In direct mode that takes one GET for each.
    pub async fn list(&self) -> Result<Vec<LimitInfo>, Error> {
        let documents = self.documents.all().await?;
        let mut limits = Vec::with_capacity(documents.len());
        for document in &documents {
            match info(document) {
                Ok(limit) => limits.push(limit),
                Err(error) => {
                    tracing::warn!(limit = %document.id.name, %error, "skipping an unreadable limit");
                }
            }
        }
        self.add_usage(limits).await
    }

    /// One limit, with what is used of it.
    pub async fn get(&self, name: &str) -> Result<LimitInfo, Error> {
        let name = DocumentName::new(name)?;
        let found = self.documents.find(&name).await?;
        let found = found.as_ref().map_or_else(|| Err(no_limit(&name)), info)?;
        let mut found = self.add_usage(vec![found]).await?;
        found.pop().ok_or_else(|| no_limit(&name))
    }

    async fn add_usage(&self, mut limits: Vec<LimitInfo>) -> Result<Vec<LimitInfo>, Error> {
        if limits.is_empty() {
            return Ok(limits);
        }
        let named = limits.iter();
        let named: Vec<_> = named
            .map(|info| (info.name.clone(), info.limit.clone()))
            .collect();
        let usage = self.documents.queue.engine().limit_usage(&named).await?;
        for info in &mut limits {
            info.usage = usage.get(&info.name).copied();
        }
        Ok(limits)
    }

    /// Removes a limit. The tasks that waited for it can start.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let name = DocumentName::new(name)?;
        let removing = self.documents.change(&name, |known| {
            known.ok_or_else(|| no_limit(&name))?;
            Ok(Decision::Write(None, Vec::new()))
        });
        removing.await.map(drop)
    }
}

fn info(document: &Document) -> Result<LimitInfo, Error> {
    Ok(LimitInfo {
        name: document.id.name.clone(),
        limit: Limit::read(&document.body)?,
        updated_at: document.updated_at,
        usage: None,
    })
}

fn no_limit(name: &DocumentName) -> Error {
    Error::NoLimit {
        name: name.to_string(),
    }
}
