//! Requests as values, so that they can be applied late, twice or never.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Attributes, Error, GetOptions, GetResult, ListResult, ObjectMeta, PutMode, PutResult,
};
use qo_core::keys::Key;
use qo_store::wrap::Operation;

/// One request.
#[derive(Debug, Clone)]
pub enum Request {
    /// A write.
    Put {
        /// The key.
        key: Path,
        /// The body or the key.
        body: Bytes,
        /// The condition.
        mode: PutMode,
        /// The attributes.
        attributes: Attributes,
    },
    /// A read.
    Get {
        /// The body or the key.
        key: Path,
        /// How.
        options: Box<GetOptions>,
    },
    /// A list of keys.
    List {
        /// The prefix.
        prefix: Option<Path>,
        /// The key to start after.
        offset: Option<Path>,
    },
    /// A list of one level.
    Folders {
        /// The prefix.
        prefix: Option<Path>,
    },
    /// Removals.
    Delete {
        /// The keys.
        keys: Vec<Path>,
    },
}

/// The store's reply to an applied request.
#[derive(Debug)]
pub enum StoreReply {
    /// To a write.
    Put(PutResult),
    /// To a read.
    Get(GetResult),
    /// To a list.
    List(Vec<ObjectMeta>),
    /// To a list of one level.
    Folders(ListResult),
    /// To removals.
    Deleted,
}

impl Request {
    /// Its kind.
    pub fn operation(&self) -> Operation {
        match self {
            Self::Put { mode, .. } => match mode {
                PutMode::Overwrite => Operation::Put,
                PutMode::Create => Operation::Create,
                PutMode::Update(_) => Operation::Swap,
            },
            Self::Get { .. } => Operation::Get,
            Self::List { .. } | Self::Folders { .. } => Operation::List,
            Self::Delete { .. } => Operation::Delete,
        }
    }

    /// Whether it writes a record that several tasks share: the line of an ordering key or the record of a limit.
    pub fn writes_shared_record(&self) -> bool {
        match self {
            Self::Put { key, .. } => {
                let key = key.as_ref().parse();
                matches!(key, Ok(Key::Line(_) | Key::Limit(_)))
            }
            _ => false,
        }
    }

    /// Whether it writes the entry of a lease.
    pub fn writes_lease_entry(&self) -> bool {
        match self {
            Self::Put { key, .. } => matches!(key.as_ref().parse(), Ok(Key::Lease { .. })),
            _ => false,
        }
    }

    /// Whether it is a write.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Delete { .. })
    }

    /// Whether it is a conditional write.
    pub fn is_conditional(&self) -> bool {
        matches!(self.operation(), Operation::Create | Operation::Swap)
    }

    /// Describes it in a line.
    pub fn describe(&self) -> String {
        let text = |path: &Option<Path>| path.as_ref().map(ToString::to_string).unwrap_or_default();
        match self {
            Self::Put {
                key, body, mode, ..
            } => match mode {
                PutMode::Overwrite => format!("PUT {key} ({} bytes)", body.len()),
                PutMode::Create => format!("CREATE {key} ({} bytes)", body.len()),
                PutMode::Update(expected) => format!(
                    "SWAP {key} {} ({} bytes)",
                    expected.e_tag.as_deref().unwrap_or("?"),
                    body.len()
                ),
            },
            Self::Get { key, .. } => format!("GET {key}"),
            Self::List { prefix, offset } => {
                format!("LIST {} after {:?}", text(prefix), text(offset))
            }
            Self::Folders { prefix } => format!("FOLDERS {}", text(prefix)),
            Self::Delete { keys } => {
                let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
                format!("DELETE {}", keys.join(" "))
            }
        }
    }
}

/// An answer in a line.
pub(super) fn outcome(result: &Result<StoreReply, Error>) -> String {
    match result {
        Ok(StoreReply::Put(put)) => format!("ok {}", put.e_tag.as_deref().unwrap_or("?")),
        Ok(StoreReply::Get(get)) => format!("ok {}", get.meta.e_tag.as_deref().unwrap_or("?")),
        Ok(StoreReply::List(entries)) => {
            let keys: Vec<&str> = entries
                .iter()
                .map(|entry| entry.location.as_ref())
                .collect();
            format!("{} keys: {}", keys.len(), keys.join(" "))
        }
        Ok(StoreReply::Folders(list)) => format!("{} folders", list.common_prefixes.len()),
        Ok(StoreReply::Deleted) => "ok".to_owned(),
        Err(Error::NotFound { .. }) => "404".to_owned(),
        Err(Error::NotModified { .. }) => "304".to_owned(),
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => "412".to_owned(),
        Err(error) => error.to_string(),
    }
}
