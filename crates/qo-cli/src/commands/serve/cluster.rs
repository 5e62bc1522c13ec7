//! `qo serve --cluster`: a node of a cluster.
//!
//! The node starts first and listens for the other nodes; then the server listens for clients. A follower answers health checks and names
//! the leader to clients. On a stop, the node hands over the leadership, the server accepts no more requests, and the node stops.

use std::sync::Arc;

use qo_cluster::{ClusterConfig, ClusterError, ClusterSecret, Member, NodeGroups};
use qo_server::ServerConfig;

use super::{announce, deliverer};
use crate::args::ServeArgs;
use crate::commands::cluster::{SECRET_VARIABLE, cluster_secret, secret_token};
use crate::commands::cluster_node::bind;
use crate::failure::{Failure, FailureKind};
use crate::session::Session;
use crate::signals::{Signals, close_in_time};

pub(super) async fn run(
    args: &ServeArgs,
    mut config: ServerConfig,
    signals: &Signals,
    session: &mut Session,
) -> Result<(), Failure> {
    let Some(secret) = cluster_secret(args.node.secret_file.as_deref(), session)? else {
        return Err(Failure::bad_input("the nodes of a cluster share a secret, and none is set")
            .hint(format!("write 32 random characters into a file for --secret-file, or into {SECRET_VARIABLE}; all nodes need the same")));
    };
    let admin = secret_token(&secret)?;
    let node_config = node_config(args, secret, session)?;
    let payload_max = node_config.broker.payload_max_bytes;
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
        let node = NodeGroups::start(node_config, Arc::clone(&runtime)).await?;
        let server = bind(&node, &runtime, config, admin.record, payload_max).await?;
        Ok::<_, Failure>((node, server))
    };
    let (node, server) = tokio::select! {
        biased;
        () = signals.stop.cancelled() => return Ok(()),
        started = starting => started?,
    };
    let serving = node.clone();
    let deliverer = deliverer(args, &server, session, move || serving.is_serving())?;
    let announcer = announce(args, &server, session)?;
    let handing_over = async {
        signals.stop.cancelled().await;
        if let Some(deliverer) = deliverer {
            deliverer.stop().await;
        }
        node.hand_over().await;
    };
    tokio::join!(server.run_until(signals.stop.cancelled()), handing_over);
    drop(announcer);
    close_in_time(session.runtime.as_ref(), node.shutdown()).await;
    Ok(())
}

fn node_config(
    args: &ServeArgs,
    secret: Vec<u8>,
    session: &Session,
) -> Result<ClusterConfig, Failure> {
    let node_args = &args.node;
    let (Some(cluster), Some(node), Some(data)) =
        (&node_args.cluster, node_args.node, &node_args.data)
    else {
        return Err(Failure::bad_input("--cluster needs --node and --data"));
    };
    let secret = ClusterSecret::new(secret)?;
    let data = session.environment.directory.join(data);
    let mut config = ClusterConfig::new(node, cluster, data, node_args.node_listen, secret);
    config.groups = node_args.groups;
    config.broker.payload_max_bytes = node_args.payload_max;
    config.members = node_args
        .member
        .iter()
        .map(|member| Member::new(member.node, &member.address, &member.url))
        .collect();
    Ok(config)
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
