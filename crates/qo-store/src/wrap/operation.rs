//! The kinds of store requests.

use std::fmt;

use object_store::path::Path;
use object_store::{GetOptions, PutMode};
use serde::{Deserialize, Serialize};

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// An unconditional write.
    Put,
    /// A write that requires the object not to exist.
    Create,
    /// A write that requires the object to be unchanged.
    Swap,
    /// A read of an object or part of it.
    Get,
    /// A read of an object's metadata.
    Head,
    /// One page of a list.
    List,
    /// A delete of up to 1,000 objects.
    Delete,
    /// A copy within the store.
    Copy,
    /// The start of a multipart upload.
    MultipartStart,
    /// One part of a multipart upload.
    MultipartPart,
    /// The completion of a multipart upload, which makes the object visible.
    MultipartComplete,
    /// The abort of a multipart upload.
    MultipartAbort,
}

impl Operation {
    /// Every kind, in display order.
    pub const ALL: [Self; 12] = [
        Self::Put,
        Self::Create,
        Self::Swap,
        Self::Get,
        Self::Head,
        Self::List,
        Self::Delete,
        Self::Copy,
        Self::MultipartStart,
        Self::MultipartPart,
        Self::MultipartComplete,
        Self::MultipartAbort,
    ];

    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Create => "create",
            Self::Swap => "swap",
            Self::Get => "get",
            Self::Head => "head",
            Self::List => "list",
            Self::Delete => "delete",
            Self::Copy => "copy",
            Self::MultipartStart => "multipart_start",
            Self::MultipartPart => "multipart_part",
            Self::MultipartComplete => "multipart_complete",
            Self::MultipartAbort => "multipart_abort",
        }
    }

    pub(super) fn of_put(mode: &PutMode) -> Self {
        match mode {
            PutMode::Overwrite => Self::Put,
            PutMode::Create => Self::Create,
            PutMode::Update(_) => Self::Swap,
        }
    }

    pub(super) fn of_get(options: &GetOptions) -> Self {
        if options.head { Self::Head } else { Self::Get }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The first segment of a path, such as `tasks`; `/` for the root.
pub(super) fn first_segment(path: &Path) -> &str {
    match path.as_ref().split('/').next() {
        None | Some("") => "/",
        Some(segment) => segment,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_tables_use_the_same_names() {
        for operation in Operation::ALL {
            assert_eq!(
                serde_json::to_value(operation).unwrap(),
                operation.name(),
                "{operation:?}"
            );
        }
    }

    #[test]
    fn the_first_segment_names_the_prefix() {
        assert_eq!(first_segment(&Path::from("tasks/a/1.json")), "tasks");
        assert_eq!(first_segment(&Path::from("lone")), "lone");
        assert_eq!(first_segment(&Path::default()), "/");
    }
}
