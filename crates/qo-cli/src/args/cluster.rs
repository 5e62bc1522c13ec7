//! `qo cluster`, and the arguments of `qo serve` for a node of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use qo_remote::wire::cluster::MemberBody;

/// Arguments of `qo serve` for a node of a cluster.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster mode")]
pub struct NodeArgs {
    /// Run as a node of this cluster
    #[arg(long, value_name = "NAME", requires_all = ["node", "data"])]
    pub cluster: Option<String>,
    /// Number of this node, from 1; it never changes
    #[arg(long, value_name = "NUMBER", requires = "cluster", value_parser = clap::value_parser!(u64).range(1..))]
    pub node: Option<u64>,
    /// Directory of this node's log and rows
    #[arg(long, value_name = "DIRECTORY", requires = "cluster")]
    pub data: Option<PathBuf>,
    /// Address to listen on for the other nodes
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        requires = "cluster",
        default_value = "127.0.0.1:7778"
    )]
    pub node_listen: SocketAddr,
    /// Initial member of a new cluster: its number, its address for nodes, and its URL for clients; repeatable, and the same on every
    /// node. Omit it on a node that joins later
    #[arg(long, value_name = "NUMBER@HOST:PORT=URL", requires = "cluster", value_parser = member)]
    pub member: Vec<MemberArg>,
    /// Number of Raft groups that the tasks are divided into; the same on every node, and fixed when the cluster is created
    #[arg(
        long,
        value_name = "COUNT",
        requires = "cluster",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=64)
    )]
    pub groups: u16,
    /// Largest input or output, in bytes; large ones go through the log in parts
    #[arg(
        long,
        value_name = "BYTES",
        requires = "cluster",
        default_value_t = 16 * 1024 * 1024,
        value_parser = clap::value_parser!(u64).range(1_024..=32 * 1024 * 1024)
    )]
    pub payload_max: u64,
    /// File with the secret that all nodes share.
    #[arg(
        long,
        value_name = "FILE",
        requires = "cluster",
        help = "File with the secret that all nodes share [env: QO_CLUSTER_SECRET, the secret itself]"
    )]
    pub secret_file: Option<PathBuf>,
}

/// A member of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberArg {
    /// Its number.
    pub node: u64,
    /// Where the other nodes reach it.
    pub address: String,
    /// Where clients reach it.
    pub url: String,
}

/// Parses `NUMBER@HOST:PORT=URL`.
fn member(text: &str) -> Result<MemberArg, String> {
    let example = "write it as 1@10.0.0.5:7778=http://10.0.0.5:7777";
    let (node, rest) = text.split_once('@').ok_or(example)?;
    let (address, url) = rest.split_once('=').ok_or(example)?;
    let node = node.parse().ok().filter(|node| *node > 0).ok_or(example)?;
    let body = MemberBody {
        address: address.to_owned(),
        url: url.to_owned(),
    };
    let checked = body.check();
    checked.map_err(|error| format!("node {node}: {error}; {example}"))?;
    Ok(MemberArg {
        node,
        address: body.address,
        url: body.url,
    })
}

/// Arguments of `qo cluster`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo cluster status --store cluster://10.0.0.5,10.0.0.6,10.0.0.7
  qo cluster add 4@10.0.0.8:7778=http://10.0.0.8:7777
  qo cluster promote 4
  qo cluster remove 2
  qo cluster log --limit 20")]
pub struct ClusterArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// The subcommands of `qo cluster`.
#[derive(Debug, Clone, Subcommand)]
pub enum ClusterCommand {
    /// Show the nodes, the leader, and how far each node is behind
    Status,
    /// Add a node that runs with the same --cluster and no --member
    ///
    /// The node receives the data, but does not vote yet. The command returns when the node has caught up; `qo cluster promote`
    /// then lets it vote.
    Add(ClusterAddArgs),
    /// Let a node vote
    Promote(ClusterNodeArgs),
    /// Remove a node; stop it afterwards
    Remove(ClusterNodeArgs),
    /// Make a snapshot of one node, so that the log before it can be deleted
    Snapshot,
    /// Print entries of the replicated log and the commands in them
    Log(ClusterLogArgs),
}

/// Arguments of `qo cluster add`.
#[derive(Debug, Clone, Args)]
pub struct ClusterAddArgs {
    /// The node: its number, its address for nodes, its URL for clients
    #[arg(value_name = "NUMBER@HOST:PORT=URL", value_parser = member)]
    pub member: MemberArg,
}

/// Arguments of `qo cluster promote` and `qo cluster remove`.
#[derive(Debug, Clone, Args)]
pub struct ClusterNodeArgs {
    /// The number of the node
    #[arg(value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub node: u64,
}

/// Arguments of `qo cluster log`.
#[derive(Debug, Clone, Args)]
pub struct ClusterLogArgs {
    /// Group whose log to print, in a cluster with several groups
    #[arg(long, value_name = "GROUP", default_value_t = 0)]
    pub group: u16,
    /// First entry [default: the first that is kept]
    #[arg(long, value_name = "INDEX")]
    pub from: Option<u64>,
    /// Maximum number of entries
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub limit: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_parsed_and_mistakes_are_explained() {
        let parsed = member("1@node-1:7778=https://node-1").unwrap();
        assert_eq!(
            (parsed.node, parsed.address.as_str(), parsed.url.as_str()),
            (1, "node-1:7778", "https://node-1")
        );
        assert!(member("2@[::1]:7778=http://[::1]:7777").is_ok());
        for bad in [
            "",
            "1",
            "1@a:1",
            "0@a:1=http://a",
            "x@a:1=http://a",
            "1@a=http://a",
            "1@:1=http://a",
            "1@a:0=http://a",
            "1@a:1=ftp://a",
            "1@a:1=cluster://a",
            "1@a:1=http://a,http://b",
        ] {
            assert!(member(bad).is_err(), "{bad}");
        }
    }
}
