//! The job routes, with the names of queuey-queue. Times are milliseconds since 1970.

use qo_core::{BlobAddress, LeaseId, QueueName, TaskId, WorkerId};
use serde::{Deserialize, Serialize};

#[cfg(feature = "openapi")]
use super::schema;

/// A job to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobCreateBody {
    /// The program: the address of a WASI binary.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Address))]
    pub binary_addr: BlobAddress,
    /// The program's standard input; empty by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Address>))]
    pub input_addr: Option<BlobAddress>,
    /// The program's arguments after its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub args: Vec<String>,
    /// The queue; `default` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub queue: Option<QueueName>,
    /// How long `qo worker --wasi` lets one attempt run; 300 by default. Runners over HTTP are bound by their tickles only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 2_592_000))]
    pub timeout_seconds: Option<u64>,
}

/// A request for a job to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobClaimBody {
    /// The runner.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Name))]
    pub runner_id: WorkerId,
    /// The queue; `default` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub queue: Option<QueueName>,
}

/// A sign of life of a runner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobTickleBody {
    /// The lease of the claim. With it, a runner that has lost its job is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Id>))]
    pub lease_id: Option<LeaseId>,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum JobOutcome {
    /// Successfully.
    Completed,
    /// Not successfully. It is not tried again.
    Failed,
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobCompleteBody {
    /// How it ended.
    pub status: JobOutcome,
    /// The program's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Address>))]
    pub output_addr: Option<BlobAddress>,
    /// The program's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The lease of the claim. With it, a runner that has lost its job is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Id>))]
    pub lease_id: Option<LeaseId>,
}

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum JobStatus {
    /// It waits for a runner.
    Pending,
    /// A runner has it.
    Active,
    /// It was completed.
    Completed,
    /// A runner marked it as failed, it was abandoned too often, or it was cancelled.
    Failed,
}

impl JobStatus {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Job {
    /// Its id, which is also that of its task.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub job_id: TaskId,
    /// The program.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Address))]
    pub binary_addr: BlobAddress,
    /// The program's standard input.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Address>))]
    pub input_addr: Option<BlobAddress>,
    /// When it was created, in milliseconds since 1970.
    pub created_at: i64,
    /// When it last changed, in milliseconds since 1970.
    pub updated_at: i64,
    /// When it ended, in milliseconds since 1970.
    pub completed_at: Option<i64>,
    /// Its status.
    pub status: JobStatus,
    /// The number of claims.
    pub run_attempts: u32,
    /// The runner that has it or ended it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub runner_id: Option<WorkerId>,
    /// The program's output.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Address>))]
    pub output_addr: Option<BlobAddress>,
    /// The program's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The lease of the claim; only in the response to a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Id>))]
    pub lease_id: Option<LeaseId>,
}
