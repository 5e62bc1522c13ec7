//! Single values: ids, names, times, and the words that a field may have.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// The pattern of a text without control characters.
const NO_CONTROL_CHARACTERS: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";

/// Defines the schema of a string.
macro_rules! text {
    ($(#[doc = $doc:literal])* $name:ident, |$builder:ident| $rest:expr) => {
        $(#[doc = $doc])*
        #[derive(Debug)]
        pub struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let $builder = ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some(concat!($($doc),*).trim()));
                RefOr::T(Schema::Object($rest.build()))
            }
        }

        impl ToSchema for $name {}
    };
}

text!(
    /// A UUID in hyphenated form.
    Id,
    |text| text
        .format(Some(SchemaFormat::Custom("uuid".to_owned())))
        .pattern(Some("^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"))
        .min_length(Some(36))
        .max_length(Some(36))
);
text!(
    /// The name of a queue, a task type or a worker.
    Name,
    |text| text
        .pattern(Some("^[A-Za-z0-9_-][A-Za-z0-9_.-]*$"))
        .min_length(Some(1))
        .max_length(Some(64))
);
text!(
    /// A tag: up to 64 bytes without control characters.
    Label,
    |text| text
        .pattern(Some(NO_CONTROL_CHARACTERS))
        .min_length(Some(1))
        .max_length(Some(64))
);
text!(
    /// An idempotency key: up to 256 bytes without control characters.
    Key,
    |text| text
        .pattern(Some(NO_CONTROL_CHARACTERS))
        .min_length(Some(1))
        .max_length(Some(256))
);
text!(
    /// Who did something: up to 128 bytes without control characters.
    ActorName,
    |text| text
        .pattern(Some(NO_CONTROL_CHARACTERS))
        .min_length(Some(1))
        .max_length(Some(128))
);
text!(
    /// A time in RFC 3339, from 1970 to 9999, truncated to milliseconds.
    Time,
    |text| text.format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
);
text!(
    /// A W3C traceparent of version 00.
    Trace,
    |text| text.pattern(Some("^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$"))
);
text!(
    /// One hexadecimal digit.
    ShardDigit,
    |text| text.pattern(Some("^[0-9a-f]$"))
);
text!(
    /// The bytes of a blob.
    Binary,
    |text| text.format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)))
);
text!(
    /// The address of a blob: the SHA-256 digest of its bytes.
    Address,
    |text| text.pattern(Some("^[0-9a-f]{64}$"))
);
text!(
    /// The status of a task.
    TaskStatus,
    |text| text.enum_values(Some([
        "pending", "running", "completed", "failed", "cancelled", "archived"
    ]))
);
text!(
    /// The action of an event. Later versions may add actions.
    EventAction,
    |text| text.enum_values(Some(qo_core::task::EventAction::ALL.map(qo_core::task::EventAction::name)))
);
text!(
    /// The operation to apply to all matching tasks. If the filter names no statuses, `cancel` selects pending and running tasks,
    /// `replay` failed ones, `redrive` pending and failed ones, `run_now` pending ones that are not due yet, `archive` finished ones, `unarchive` archived ones, and
    /// `purge` finished and archived ones.
    BulkOperation,
    |text| text.enum_values(Some(qo_engine::BulkOperation::ALL.map(qo_engine::BulkOperation::name)))
);
text!(
    /// What a worker is asked to do: `quiet` to claim no more tasks, `stop` to finish its tasks and exit.
    WorkerAction,
    |text| text.enum_values(Some(["quiet", "stop"]))
);
text!(
    /// The kind of a failure: `retryable` and `timeout` are retried, `permanent` fails the task, `cancelled` ends a cancelled task.
    FailureKind,
    |text| text.enum_values(Some(["retryable", "permanent", "timeout", "cancelled"]))
);
text!(
    /// The tasks among which an idempotency key must be unique.
    Scope,
    |text| text.enum_values(Some(["queue", "type", "global"]))
);

text!(
    /// How long a task holds its idempotency key.
    KeyHold,
    |text| text.enum_values(Some(["kept", "unfinished", "waiting"]))
);

text!(
    /// What happens to a waiting task that holds the idempotency key of a submit.
    OnConflict,
    |text| text.enum_values(Some(["keep", "replace", "postpone", "replace_and_postpone"]))
);

text!(
    /// What happens to the next tasks with the same ordering key if this one fails permanently: they run, or they wait until someone
    /// replays or cancels the failed one.
    FailurePolicy,
    |text| text.enum_values(Some(["continue", "stop"]))
);

/// Any JSON.
#[derive(Debug)]
pub struct AnyJson;

impl PartialSchema for AnyJson {
    fn schema() -> RefOr<Schema> {
        RefOr::T(Schema::Object(
            ObjectBuilder::new()
                .schema_type(SchemaType::AnyValue)
                .description(Some("Any JSON, stored byte for byte."))
                .build(),
        ))
    }
}

impl ToSchema for AnyJson {}
