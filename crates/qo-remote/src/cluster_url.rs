//! The URL of a cluster: `cluster://node-1:7777,node-2:7777,node-3:7777`.
//!
//! A cluster is a list of servers, one of which leads. The client asks any of them; a follower names the leader, and a node that does
//! not respond is skipped ([`directory`](super::directory)). So the URL needs not be complete, and survives the replacement of nodes
//! as long as one of its nodes is a member.
//!
//! | parameter | meaning |
//! | --- | --- |
//! | `tls=true` | the nodes serve HTTPS |
//! | `stale=true` | reads may be old: any node answers them from its own rows |

use url::Url;

use super::config::{InvalidServer, server};

/// The scheme of a cluster's URL.
const SCHEME: &str = "cluster://";
/// The port of a node whose address has none, as `qo serve` listens on.
const PORT_DEFAULT: u16 = 7_777;

/// What a cluster's URL says.
#[derive(Debug)]
pub(super) struct ClusterUrl {
    pub(super) nodes: Vec<Url>,
    pub(super) stale_reads: bool,
}

/// What a cluster's URL says; `None` if the text is not one.
pub(super) fn parse(text: &str) -> Option<Result<ClusterUrl, InvalidServer>> {
    let (scheme, rest) = text.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| {
        let (nodes, query) = rest.split_once('?').unwrap_or((rest, ""));
        let [tls, stale_reads] = parameters(query)?;
        let scheme = if tls { "https" } else { "http" };
        let nodes = addresses(nodes, scheme)?;
        Ok(ClusterUrl { nodes, stale_reads })
    })
}

fn addresses(nodes: &str, scheme: &str) -> Result<Vec<Url>, InvalidServer> {
    // A final slash is what other URLs end with.
    let nodes = nodes.strip_suffix('/').unwrap_or(nodes);
    nodes
        .split(',')
        .map(|node| {
            let node = node.trim();
            if node.is_empty() {
                return Err(invalid("an address is empty"));
            }
            if node.contains('@') {
                return Err(invalid("it contains credentials; set QO_TOKEN instead"));
            }
            if node.contains(['/', '#']) {
                return Err(invalid("it must not have a path or a fragment"));
            }
            let mut url = server(&format!("{scheme}://{node}"))
                .map_err(|_| invalid(&format!("{node:?} is not an address")))?;
            let has_port = node.rsplit_once(':').is_some_and(|(_, port)| {
                !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit())
            });
            if !has_port && url.set_port(Some(PORT_DEFAULT)).is_err() {
                return Err(invalid(&format!("{node:?} is not an address")));
            }
            Ok(url)
        })
        .collect()
}

/// Whether the nodes serve HTTPS, and whether reads may be old.
fn parameters(query: &str) -> Result<[bool; 2], InvalidServer> {
    let [mut tls, mut stale] = [false; 2];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=').unwrap_or((pair, "")) {
            (name @ ("tls" | "stale"), value) => {
                let value = value
                    .parse()
                    .map_err(|_| invalid(&format!("{name} must be true or false")))?;
                *(if name == "tls" { &mut tls } else { &mut stale }) = value;
            }
            ("token", _) => return Err(invalid("it contains a token; set QO_TOKEN instead")),
            (name, _) => {
                let name: String = name.chars().take(32).collect();
                return Err(invalid(&format!("unknown parameter {name:?}")));
            }
        }
    }
    Ok([tls, stale])
}

fn invalid(problem: &str) -> InvalidServer {
    InvalidServer::Cluster {
        problem: problem.chars().take(200).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(text: &str) -> Vec<String> {
        let urls = parse(text).unwrap().unwrap();
        urls.nodes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nodes_keep_their_order_and_get_the_default_port() {
        assert_eq!(
            urls("cluster://a,b:1, [::1]:2,[::1],10.0.0.5:80"),
            [
                "http://a:7777/",
                "http://b:1/",
                "http://[::1]:2/",
                "http://[::1]:7777/",
                "http://10.0.0.5/"
            ]
        );
        assert_eq!(urls("CLUSTER://a/?tls=true"), ["https://a:7777/"]);
        assert_eq!(urls("cluster://a:443?tls=true"), ["https://a/"]);
        assert!(parse("http://a").is_none() && parse("cluster:a").is_none());
        let stale = |text: &str| parse(text).unwrap().unwrap().stale_reads;
        assert!(stale("cluster://a?stale=true") && stale("cluster://a?tls=true&stale=true"));
        assert!(!stale("cluster://a") && !stale("cluster://a?stale=false"));
    }

    #[test]
    fn invalid_urls_are_rejected_without_showing_secrets() {
        for (bad, problem) in [
            ("cluster://", "empty"),
            ("cluster://a,,b", "empty"),
            ("cluster://u:geheim@a", "QO_TOKEN"),
            ("cluster://a?token=geheim", "QO_TOKEN"),
            ("cluster://a?engine=slate", "unknown parameter"),
            ("cluster://a?tls=maybe", "true or false"),
            ("cluster://a?stale=1", "true or false"),
            ("cluster://a/b", "path"),
            ("cluster://a:99999", "not an address"),
            ("cluster://http://a", "path"),
        ] {
            let error = parse(bad).unwrap().unwrap_err().to_string();
            assert!(error.contains(problem), "{bad}: {error}");
            assert!(!error.contains("geheim"), "{error}");
            assert!(error.contains("cluster://host:port"), "{error}");
        }
    }
}
