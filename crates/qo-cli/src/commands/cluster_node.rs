//! The server of a node: its queue, tokens and blobs, and its view of the cluster.

use std::sync::Arc;
use std::time::Duration;

use qo::Queue;
use qo::blob::Blobs;
use qo_cluster::{ClusterError, ClusterNode, ClusterStatus, Member, NodeGroups};
use qo_server::tokens::{TokenRecord, TokenStore};
use qo_server::{
    ActivityStore, Auth, ClusterChange, ClusterControl, ClusterFailure, ClusterGauge, Leader,
    ServeError, Server, ServerConfig,
};
use qo_store::runtime::{BoxFuture, Runtime};
use serde_json::Value;

/// The largest blob: what is written in one piece.
const BLOB_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// How often it is checked whether this node still leads, for requests that wait.
const LEADER_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Starts to listen for the clients of a node. `admin` is a token that it accepts besides those in the cluster.
pub(super) async fn bind(
    node: &NodeGroups,
    runtime: &Arc<dyn Runtime>,
    mut config: ServerConfig,
    admin: TokenRecord,
    payload_max: u64,
) -> Result<Server, ServeError> {
    let handle = NodeHandle {
        id: node.id().to_string(),
        node: node.clone(),
        runtime: Arc::clone(runtime),
    };
    config.leader = Some(Arc::new(handle.clone()));
    config.cluster = Some(Arc::new(handle));
    // Every node checks tokens, also while another one leads.
    let tokens = TokenStore::new(node.local_objects(), Arc::clone(runtime));
    config.auth = Auth::stored_besides(tokens, vec![admin]);
    let blob_max = payload_max.min(BLOB_MAX_BYTES);
    let blobs = Blobs::new(node.objects(), Arc::clone(runtime), blob_max);
    config.activity = Some(ActivityStore::of_queue(node.objects()));
    let stale = Queue::new(node.stale_engine(), Arc::clone(runtime));
    config.stale = Some(stale);
    let queue = Queue::new(node.engine(), Arc::clone(runtime));
    Server::bind(queue.with_blobs(Arc::new(blobs)), config).await
}

/// What the server asks a node.
#[derive(Clone)]
struct NodeHandle {
    id: String,
    node: NodeGroups,
    runtime: Arc<dyn Runtime>,
}

impl NodeHandle {
    /// The term of this node's leadership, while it serves; the sum of the terms if there are several groups.
    fn epoch(&self) -> Option<u64> {
        self.node.is_serving().then(|| self.node.reign())
    }
}

impl Leader for NodeHandle {
    fn id(&self) -> &str {
        &self.id
    }

    fn is_confirmed(&self) -> bool {
        self.node.is_serving()
    }

    /// The engine itself responds only with what a majority has confirmed, so nothing more is asked here.
    fn confirm(&self) -> BoxFuture<Option<u64>> {
        let epoch = self.epoch();
        Box::pin(std::future::ready(epoch))
    }

    fn epoch_ended(&self, epoch: u64) -> BoxFuture<()> {
        let handle = self.clone();
        Box::pin(async move {
            while handle.epoch() == Some(epoch) {
                handle.runtime.sleep(LEADER_CHECK_INTERVAL).await;
            }
        })
    }

    fn leader_address(&self) -> Option<String> {
        let leader = self.node.leader()?;
        (leader.node != self.node.id()).then_some(leader.url)
    }
}

impl ClusterControl for NodeHandle {
    fn status(&self) -> Value {
        serde_json::to_value(self.node.status()).unwrap_or(Value::Null)
    }

    fn log(
        &self,
        group: u16,
        from: Option<u64>,
        limit: usize,
    ) -> BoxFuture<Result<Value, ClusterFailure>> {
        let node = self.node.clone();
        Box::pin(async move {
            let lines = node.log(group, from, limit).await;
            let lines = lines.map_err(cluster_failure)?;
            serde_json::to_value(lines).map_err(|error| ClusterFailure::Failed(error.to_string()))
        })
    }

    fn change(&self, change: ClusterChange) -> BoxFuture<Result<(), ClusterFailure>> {
        let node = self.node.clone();
        Box::pin(async move {
            let changed = match change {
                ClusterChange::Add {
                    node: number,
                    address,
                    url,
                } => node.add(Member::new(number, address, url)).await,
                ClusterChange::Promote(number) => node.promote(number).await,
                ClusterChange::Remove(number) => node.remove(number).await,
                ClusterChange::Snapshot => node.snapshot().await,
                _ => Err(ClusterError::Membership("unknown change".to_owned())),
            };
            changed.map_err(cluster_failure)
        })
    }

    fn gauges(&self) -> Vec<ClusterGauge> {
        let groups = self.node.groups();
        let statuses: Vec<ClusterStatus> = groups.iter().map(ClusterNode::status).collect();
        let of_group = |group: u16| (statuses.len() > 1).then_some(group);
        let mut gauges = Vec::new();
        for (name, help, value) in GROUP_GAUGES {
            for (status, group) in statuses.iter().zip(0..) {
                gauges.push(ClusterGauge {
                    name,
                    help,
                    node: None,
                    group: of_group(group),
                    value: value(status),
                });
            }
        }
        for (status, group) in statuses.iter().zip(0..) {
            for member in &status.members {
                let Some(lag) = member.lag else { continue };
                gauges.push(ClusterGauge {
                    name: "qo_cluster_lag_entries",
                    help: "How many entries a node is behind, as the leader knows.",
                    node: Some(member.node),
                    group: of_group(group),
                    value: double(Some(lag)),
                });
            }
        }
        gauges
    }
}

type GroupGauge = (&'static str, &'static str, fn(&ClusterStatus) -> f64);

/// The gauges of each group, from its state.
const GROUP_GAUGES: [GroupGauge; 7] = [
    ("qo_cluster_term", "The term of the election.", |status| {
        double(Some(status.term))
    }),
    (
        "qo_cluster_leader",
        "The number of the leader; 0 if there is none.",
        |status| double(status.leader),
    ),
    (
        "qo_cluster_log_entries",
        "Entries of the log on this node's disk.",
        |status| {
            let last = status.log_last;
            double(last.map(|last| (last + 1).saturating_sub(status.log_first)))
        },
    ),
    (
        "qo_cluster_log_bytes",
        "The size of the log on this node's disk.",
        |status| double(Some(status.log_bytes)),
    ),
    (
        "qo_cluster_sync_seconds",
        "How long the last sync of the log took.",
        |status| status.sync_ms / 1_000.0,
    ),
    (
        "qo_cluster_applied_index",
        "The last entry that is applied on this node.",
        |status| double(status.applied),
    ),
    (
        "qo_cluster_disk_full",
        "Whether the disk of the log is full.",
        |status| f64::from(u8::from(status.disk_full)),
    ),
];

#[expect(clippy::cast_precision_loss, reason = "metrics are doubles")]
fn double(value: Option<u64>) -> f64 {
    value.unwrap_or(0) as f64
}

fn cluster_failure(error: ClusterError) -> ClusterFailure {
    match error {
        ClusterError::NotLeader { leader } => ClusterFailure::NotLeader {
            leader: leader.map(|leader| leader.url),
        },
        ClusterError::Invalid(_) | ClusterError::Membership(_) => {
            ClusterFailure::Refused(error.to_string())
        }
        other => ClusterFailure::Failed(other.to_string()),
    }
}
