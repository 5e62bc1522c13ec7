//! The state and the members of a cluster. Every node answers for itself; only the leader changes the members.

use std::sync::Arc;

use axum::extract::State;
use qo_remote::wire::Condition;
use qo_remote::wire::cluster::{LOG_MAX, LogQuery, MemberBody};

use crate::app::App;
use crate::author::Author;
use crate::body::{JsonBody, PathParam, QueryParams};
use crate::cluster::{ClusterChange, ClusterControl, ClusterFailure};
use crate::response::{ApiError, ApiResult, json, no_content};

/// How many entries are listed by default.
const LOG_DEFAULT: usize = 100;

fn cluster(app: &App) -> Result<Arc<dyn ClusterControl>, ApiError> {
    app.cluster.clone().ok_or_else(|| {
        ApiError::new(
            Condition::NoCluster,
            "this server is not a node of a cluster; `qo serve --cluster` starts one",
        )
    })
}

impl From<ClusterFailure> for ApiError {
    fn from(failure: ClusterFailure) -> Self {
        match failure {
            ClusterFailure::NotLeader { leader } => {
                let detail = match &leader {
                    Some(url) => format!("only the leader changes the members; it is at {url}"),
                    None => "the cluster has no leader at the moment; try again".to_owned(),
                };
                Self::new(Condition::NotLeader { leader }, detail)
            }
            ClusterFailure::Refused(detail) => Self::bad_request(detail),
            ClusterFailure::Failed(detail) => Self::new(Condition::Internal, detail),
        }
    }
}

/// Carries out a change, and then logs it.
async fn change(
    app: &App,
    author: &Author,
    operation: &str,
    target: String,
    change: ClusterChange,
) -> ApiResult {
    cluster(app)?.change(change).await?;
    author.log(operation, &target);
    Ok(no_content())
}

/// Read the state of the cluster
///
/// The state of this node, and of the cluster as it knows it. Only the leader knows how far the others are.
#[utoipa::path(
    get, path = "/v1/cluster", tag = "inspect", operation_id = "cluster",
    responses((status = 200, description = "The state", body = Object))
)]
pub(crate) async fn status(State(app): State<App>) -> ApiResult {
    json(&cluster(&app)?.status())
}

/// Read the log of this node
///
/// Entries of the replicated log, each with the commands that it carries.
#[utoipa::path(
    get, path = "/v1/cluster/log", tag = "inspect", operation_id = "cluster_log", params(LogQuery),
    responses((status = 200, description = "The entries", body = Vec<Object>))
)]
pub(crate) async fn log(
    State(app): State<App>,
    QueryParams(query): QueryParams<LogQuery>,
) -> ApiResult {
    let limit = query.limit.unwrap_or(LOG_DEFAULT).clamp(1, LOG_MAX);
    let group = query.group.unwrap_or(0);
    json(&cluster(&app)?.log(group, query.from, limit).await?)
}

/// Add a node to the cluster
///
/// It receives the log and does not vote until it is promoted. The response is sent when it has caught up.
#[utoipa::path(
    put, path = "/v1/cluster/members/{node}", tag = "operate", operation_id = "cluster_add", request_body = MemberBody,
    params(("node" = u64, Path, description = "The number of the node")),
    responses((status = 204, description = "The node has caught up"))
)]
pub(crate) async fn add(
    State(app): State<App>,
    PathParam(node): PathParam<u64>,
    author: Author,
    JsonBody(member): JsonBody<MemberBody>,
) -> ApiResult {
    member.check().map_err(ApiError::bad_request)?;
    let MemberBody { address, url } = member;
    let add = ClusterChange::Add { node, address, url };
    change(&app, &author, "add cluster node", node.to_string(), add).await
}

/// Let a node of the cluster vote
#[utoipa::path(
    post, path = "/v1/cluster/members/{node}/promote", tag = "operate", operation_id = "cluster_promote",
    params(("node" = u64, Path, description = "The number of the node")),
    responses((status = 204, description = "The node votes"))
)]
pub(crate) async fn promote(
    State(app): State<App>,
    PathParam(node): PathParam<u64>,
    author: Author,
) -> ApiResult {
    let promote = ClusterChange::Promote(node);
    change(
        &app,
        &author,
        "promote cluster node",
        node.to_string(),
        promote,
    )
    .await
}

/// Remove a node from the cluster
#[utoipa::path(
    delete, path = "/v1/cluster/members/{node}", tag = "operate", operation_id = "cluster_remove",
    params(("node" = u64, Path, description = "The number of the node")),
    responses((status = 204, description = "The node is no longer a member"))
)]
pub(crate) async fn remove(
    State(app): State<App>,
    PathParam(node): PathParam<u64>,
    author: Author,
) -> ApiResult {
    let remove = ClusterChange::Remove(node);
    change(
        &app,
        &author,
        "remove cluster node",
        node.to_string(),
        remove,
    )
    .await
}

/// Make a snapshot of this node
///
/// The log before it can then be deleted. Nodes do this by themselves.
#[utoipa::path(
    post, path = "/v1/cluster/snapshot", tag = "operate", operation_id = "cluster_snapshot",
    responses((status = 204, description = "The snapshot is being made"))
)]
pub(crate) async fn snapshot(State(app): State<App>, author: Author) -> ApiResult {
    let target = "this node".to_owned();
    change(
        &app,
        &author,
        "make snapshot",
        target,
        ClusterChange::Snapshot,
    )
    .await
}
