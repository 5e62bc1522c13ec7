//! `qo dev --cluster`: the nodes of a cluster in this process, with their data in a temporary directory.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use qo_cluster::{ClusterConfig, ClusterSecret, Member, NodeGroups};
use qo_server::ServerConfig;
use qo_store::runtime::{Runtime, RuntimeExt};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::commands::cluster::secret_token;
use crate::commands::cluster_node::bind;
use crate::failure::{Failure, FailureKind};

/// How long open pages may delay the stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the nodes may take to elect a leader, and how often that is looked at.
const ELECTION_MAX: Duration = Duration::from_secs(30);
const ELECTION_CHECK: Duration = Duration::from_millis(50);

/// The nodes of a cluster in this process.
pub(super) struct LocalCluster {
    nodes: Vec<NodeGroups>,
    urls: Vec<String>,
    stop: CancellationToken,
    stopped: Vec<oneshot::Receiver<()>>,
    data: TempDir,
}

/// Sockets for clients and nodes. The first client port is the preferred one, if it is free.
async fn sockets(
    count: usize,
    preferred: SocketAddr,
) -> std::io::Result<(Vec<TcpListener>, Vec<TcpListener>)> {
    let any = SocketAddr::new(preferred.ip(), 0);
    let (mut clients, mut nodes) = (Vec::new(), Vec::new());
    for number in 0..count {
        let wanted = if number == 0 { preferred } else { any };
        let listener = match TcpListener::bind(wanted).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind(any).await?,
        };
        clients.push(listener);
        nodes.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?);
    }
    Ok((clients, nodes))
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Unavailable, format!("{what}: {error}"))
}

impl LocalCluster {
    /// Starts nodes, and waits until one of them leads.
    pub(super) async fn start(
        count: usize,
        preferred: SocketAddr,
        runtime: &Arc<dyn Runtime>,
    ) -> Result<Self, Failure> {
        let data = TempDir::new().map_err(|error| failed("no temporary directory", &error))?;
        let sockets = sockets(count, preferred).await;
        let (clients, listeners) = sockets.map_err(|error| failed("cannot listen", &error))?;
        let secret = format!("{:032x}", runtime.random_u128());
        let mut members = Vec::new();
        for ((client, node), number) in clients.iter().zip(&listeners).zip(1..) {
            let address = |listener: &TcpListener| {
                let address = listener.local_addr();
                address.map_err(|error| failed("cannot listen", &error))
            };
            let url = format!("http://{}", address(client)?);
            members.push(Member::new(number, address(node)?.to_string(), url));
        }
        let mut cluster = Self {
            nodes: Vec::new(),
            urls: members.iter().map(|member| member.url.clone()).collect(),
            stop: CancellationToken::new(),
            stopped: Vec::new(),
            data,
        };
        for ((client, listener), member) in clients.into_iter().zip(listeners).zip(&members) {
            let address = client.local_addr();
            let address = address.map_err(|error| failed("cannot listen", &error))?;
            let directory = cluster.data.path().join(format!("node-{}", member.node));
            let mut config = ClusterConfig::new(
                member.node,
                "dev",
                directory,
                SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                ClusterSecret::new(secret.clone())?,
            );
            config.members.clone_from(&members);
            let payload_max = config.broker.payload_max_bytes;
            let node = NodeGroups::start_on(listener, config, Arc::clone(runtime)).await?;
            cluster.nodes.push(node.clone());
            let mut server = ServerConfig::new(address);
            server.limits.stop_timeout = STOP_TIMEOUT;
            let admin = secret_token(secret.as_bytes())?.record;
            // The server binds the address itself.
            drop(client);
            let server = bind(&node, runtime, server, admin, payload_max).await?;
            let (ended, stopped) = oneshot::channel();
            let stop = cluster.stop.clone();
            runtime.spawn(Box::pin(async move {
                server
                    .run_until(async move { stop.cancelled().await })
                    .await;
                // The receiver is gone if the process exits at once.
                let _ = ended.send(());
            }));
            cluster.stopped.push(stopped);
        }
        let began = runtime.monotonic();
        while cluster.leader().is_none() {
            if runtime.monotonic().saturating_sub(began) > ELECTION_MAX {
                return Err(failed("the cluster does not start", &"no node leads"));
            }
            runtime.sleep(ELECTION_CHECK).await;
        }
        Ok(cluster)
    }

    fn leader(&self) -> Option<usize> {
        self.nodes.iter().position(NodeGroups::is_serving)
    }

    /// The URL for clients.
    pub(super) fn url(&self) -> String {
        let hosts: Vec<&str> = self
            .urls
            .iter()
            .map(|url| url.trim_start_matches("http://"))
            .collect();
        format!("cluster://{}", hosts.join(","))
    }

    /// The dashboard of the leader.
    pub(super) fn dashboard(&self) -> Option<String> {
        let leader = self.leader()?;
        self.urls.get(leader).map(|url| format!("{url}/"))
    }

    /// Stops the servers and the nodes.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        for stopped in self.stopped {
            let _ = stopped.await;
        }
        for node in self.nodes {
            node.shutdown().await;
        }
    }
}
