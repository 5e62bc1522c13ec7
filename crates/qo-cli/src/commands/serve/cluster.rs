//! `qo serve --cluster`: a node of a cluster.
//!
//! The node starts first and listens for the other nodes; then the server listens for clients. A follower answers health checks and names
//! the leader to clients. On a stop, the server accepts no more requests, and the node stops.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use qo::Queue;
use qo_cluster::{ClusterConfig, ClusterError, ClusterNode, ClusterSecret, Member};
use qo_server::{
    ClusterChange, ClusterControl, ClusterFailure, ClusterGauge, Leader, Server, ServerConfig,
};
use qo_store::runtime::{BoxFuture, Runtime};
use serde_json::Value;

use super::announce;
use crate::args::ServeArgs;
use crate::failure::{Failure, FailureKind};
use crate::session::Session;
use crate::signals::{Signals, close_in_time};

/// The variable with the secret that all nodes share.
const SECRET_VARIABLE: &str = "QO_CLUSTER_SECRET";
/// Maximum size of a file with a secret.
const SECRET_MAX_BYTES: u64 = 4_096;
/// How often it is checked whether this node still leads, for requests that wait.
const LEADER_CHECK_INTERVAL: Duration = Duration::from_millis(100);

pub(super) async fn run(
    args: &ServeArgs,
    mut config: ServerConfig,
    signals: &Signals,
    session: &mut Session,
) -> Result<(), Failure> {
    let node_config = node_config(args, session)?;
    let own = args
        .node
        .member
        .iter()
        .find(|member| Some(member.node) == args.node.node);
    let url = own
        .map(|own| own.url.as_str())
        .or(args.advertise.as_deref());
    if let Some(url) = url {
        let parsed = qo_remote::RemoteConfig::parse(url);
        let parsed = parsed.map_err(|error| Failure::bad_input(format!("--advertise: {error}")))?;
        let hosts = parsed.servers.iter().filter_map(|server| server.host_str());
        config.hosts.extend(hosts.map(str::to_owned));
    }
    let runtime = Arc::clone(&session.runtime);
    let starting = async {
        let node = ClusterNode::start(node_config, Arc::clone(&runtime)).await?;
        let handle = NodeHandle {
            id: node.id().to_string(),
            node: node.clone(),
            runtime: Arc::clone(&runtime),
        };
        config.leader = Some(Arc::new(handle.clone()));
        config.cluster = Some(Arc::new(handle));
        let queue = Queue::new(Arc::new(node.engine()), Arc::clone(&runtime));
        let server = Server::bind(queue, config).await?;
        Ok::<_, Failure>((node, server))
    };
    let (node, server) = tokio::select! {
        biased;
        () = signals.stop.cancelled() => return Ok(()),
        started = starting => started?,
    };
    let announcer = announce(args, &server, session)?;
    server.run_until(signals.stop.cancelled()).await;
    drop(announcer);
    close_in_time(session.runtime.as_ref(), node.shutdown()).await;
    Ok(())
}

fn node_config(args: &ServeArgs, session: &Session) -> Result<ClusterConfig, Failure> {
    let node_args = &args.node;
    let (Some(cluster), Some(node), Some(data)) =
        (&node_args.cluster, node_args.node, &node_args.data)
    else {
        return Err(Failure::bad_input("--cluster needs --node and --data"));
    };
    let secret = secret(node_args.secret_file.as_deref(), session)?;
    let data = session.environment.directory.join(data);
    let mut config = ClusterConfig::new(node, cluster, data, node_args.node_listen, secret);
    config.broker.payload_max_bytes = node_args.payload_max;
    config.members = node_args
        .member
        .iter()
        .map(|member| Member::new(member.node, &member.address, &member.url))
        .collect();
    Ok(config)
}

/// The secret that all nodes share, without the line break at its end.
fn secret(file: Option<&Path>, session: &Session) -> Result<ClusterSecret, Failure> {
    let text = match file {
        Some(path) => {
            let path = session.environment.directory.join(path);
            let failed = |why: String| {
                Failure::bad_input(format!(
                    "cannot read the secret in {}: {why}",
                    path.display()
                ))
            };
            let size = std::fs::metadata(&path).map_err(|error| failed(error.to_string()))?;
            if size.len() > SECRET_MAX_BYTES {
                return Err(failed(format!("it has more than {SECRET_MAX_BYTES} bytes")));
            }
            std::fs::read(&path).map_err(|error| failed(error.to_string()))?
        }
        None => match session.environment.var(SECRET_VARIABLE) {
            Some(text) => text.as_bytes().to_vec(),
            None => {
                return Err(Failure::bad_input("the nodes of a cluster share a secret, and none is set")
                    .hint(format!("write 32 random characters into a file for --secret-file, or into {SECRET_VARIABLE}; all nodes need the same")));
            }
        },
    };
    Ok(ClusterSecret::new(text.trim_ascii_end())?)
}

/// What the server asks a node.
#[derive(Clone)]
struct NodeHandle {
    id: String,
    node: ClusterNode,
    runtime: Arc<dyn Runtime>,
}

impl NodeHandle {
    /// The term of this node's leadership, while it serves.
    fn epoch(&self) -> Option<u64> {
        self.node.is_serving().then(|| self.node.status().term)
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

    fn log(&self, from: Option<u64>, limit: usize) -> BoxFuture<Result<Value, ClusterFailure>> {
        let node = self.node.clone();
        Box::pin(async move {
            let lines = node.log(from, limit).await.map_err(cluster_failure)?;
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

    #[expect(clippy::cast_precision_loss, reason = "metrics are doubles")]
    fn gauges(&self) -> Vec<ClusterGauge> {
        let status = self.node.status();
        let of_node = |name, help, value: f64| ClusterGauge {
            name,
            help,
            node: None,
            value,
        };
        let count = |value: Option<u64>| value.unwrap_or(0) as f64;
        let mut gauges = vec![
            of_node(
                "qo_cluster_term",
                "The term of the election.",
                status.term as f64,
            ),
            of_node(
                "qo_cluster_leader",
                "The number of the leader; 0 if there is none.",
                count(status.leader),
            ),
            of_node(
                "qo_cluster_log_entries",
                "Entries of the log on this node's disk.",
                count(
                    status
                        .log_last
                        .map(|last| (last + 1).saturating_sub(status.log_first)),
                ),
            ),
            of_node(
                "qo_cluster_log_bytes",
                "The size of the log on this node's disk.",
                status.log_bytes as f64,
            ),
            of_node(
                "qo_cluster_sync_seconds",
                "How long the last sync of the log took.",
                status.sync_ms / 1_000.0,
            ),
            of_node(
                "qo_cluster_applied_index",
                "The last entry that is applied on this node.",
                count(status.applied),
            ),
            of_node(
                "qo_cluster_disk_full",
                "Whether the disk of the log is full.",
                f64::from(u8::from(status.disk_full)),
            ),
        ];
        for member in &status.members {
            if let Some(lag) = member.lag {
                gauges.push(ClusterGauge {
                    name: "qo_cluster_lag_entries",
                    help: "How many entries a node is behind, as the leader knows.",
                    node: Some(member.node),
                    value: lag as f64,
                });
            }
        }
        gauges
    }
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

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        let kind = match &error {
            ClusterError::Invalid(_)
            | ClusterError::DataDirectory { .. }
            | ClusterError::Membership(_) => FailureKind::BadInput,
            _ => FailureKind::Unavailable,
        };
        Self::new(kind, error.to_string())
    }
}
