//! Configuration of the remote engine.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use url::Url;

use super::cluster_url;
use super::directory::Discovery;

/// The default interval of pings.
const PING_INTERVAL: Duration = Duration::from_secs(3);
/// The default interval of pings to the nodes of a cluster, which elects another leader within a second or two.
const CLUSTER_PING_INTERVAL: Duration = Duration::from_secs(1);
/// The most servers in a configuration.
const SERVERS_MAX: usize = 16;

/// A bearer token. Its text never appears in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Settings of a remote engine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RemoteConfig {
    /// The servers, tried in this order.
    pub servers: Vec<Url>,
    /// The token, if the servers require one.
    pub token: Option<Token>,
    /// Certificates to trust in addition to the system's, as PEM.
    pub ca_pem: Option<Vec<u8>>,
    /// How long one request may take, not counting the wait of a claim.
    pub request_timeout: Duration,
    /// How long a request is retried.
    pub retry_for: Duration,
    /// How often a server that has not responded yet is pinged, and how long a ping may take. A request moves on from a server that
    /// does not respond to pings.
    pub ping_interval: Duration,
    /// The id of the broker that the first server must be, if it came from a discovery.
    pub broker: Option<String>,
    /// Finds the broker when the known one no longer serves. The list of servers is then not used.
    pub discovery: Option<Arc<dyn Discovery>>,
    /// Whether reads may be old, so that any node of a cluster can answer them.
    pub stale_reads: bool,
}

/// Why the servers cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidServer {
    /// The URL of a server is invalid.
    #[error(
        "invalid server URL {text:?}: {problem}; write http://host:port or https://host:port, and separate several with commas"
    )]
    Url {
        /// The URL, truncated if it is long, without credentials.
        text: String,
        /// What is wrong.
        problem: String,
    },
    /// The URL of a cluster is invalid.
    #[error(
        "invalid cluster URL: {problem}; write cluster://host:port,host:port,host:port, with ?tls=true if the nodes serve HTTPS"
    )]
    Cluster {
        /// What is wrong.
        problem: String,
    },
    /// The token cannot be sent.
    #[error(
        "the token contains characters that HTTP does not allow; copy it again from where it was created"
    )]
    Token,
    /// The certificates cannot be read.
    #[error("cannot use the certificates in QO_CA_FILE: {0}")]
    Certificates(String),
    /// The HTTP client cannot be created.
    #[error("cannot create the HTTP client: {0}")]
    Client(String),
}

impl RemoteConfig {
    /// The default settings with these servers: the URL of a cluster, or URLs separated by commas.
    pub fn parse(text: &str) -> Result<Self, InvalidServer> {
        let cluster = cluster_url::parse(text).transpose()?;
        let ping_interval = if cluster.is_some() {
            CLUSTER_PING_INTERVAL
        } else {
            PING_INTERVAL
        };
        let stale_reads = cluster.as_ref().is_some_and(|cluster| cluster.stale_reads);
        let servers = match cluster {
            Some(cluster) => cluster.nodes,
            None => text
                .split(',')
                .map(|part| server(part.trim()))
                .collect::<Result<_, _>>()?,
        };
        if servers.len() > SERVERS_MAX {
            return Err(invalid(text, format!("more than {SERVERS_MAX} servers")));
        }
        Ok(Self {
            servers,
            token: None,
            ca_pem: None,
            request_timeout: Duration::from_secs(30),
            retry_for: Duration::from_secs(30),
            ping_interval,
            broker: None,
            discovery: None,
            stale_reads,
        })
    }
}

pub(super) fn server(text: &str) -> Result<Url, InvalidServer> {
    // The text before an @ may contain a password.
    let shown = match text.rsplit_once('@') {
        Some((_, host)) => format!("...@{host}"),
        None => text.to_owned(),
    };
    let mut url = Url::parse(text).map_err(|error| invalid(&shown, error.to_string()))?;
    let problem = if !matches!(url.scheme(), "http" | "https") {
        "the scheme must be http or https"
    } else if !url.username().is_empty() || url.password().is_some() {
        "it contains credentials; set QO_TOKEN instead"
    } else if url.query().is_some() || url.fragment().is_some() {
        "it must not have a query or a fragment"
    } else {
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        return Ok(url);
    };
    Err(invalid(&shown, problem.to_owned()))
}

fn invalid(text: &str, problem: String) -> InvalidServer {
    InvalidServer::Url {
        text: text.chars().take(200).collect(),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_keep_their_order() {
        let config = RemoteConfig::parse("http://a:1, https://b/qo").unwrap();
        let urls: Vec<_> = config.servers.iter().map(Url::as_str).collect();
        assert_eq!(urls, ["http://a:1/", "https://b/qo/"]);
    }

    #[test]
    fn invalid_servers_are_rejected_without_showing_secrets() {
        for bad in [
            "",
            "ftp://a",
            "http://",
            "http://u:geheim@a",
            "http://a?token=x",
            "http://a,,http://b",
        ] {
            let error = RemoteConfig::parse(bad).unwrap_err().to_string();
            assert!(!error.contains("geheim"), "{error}");
        }
        assert!(RemoteConfig::parse(&["http://a"; 17].join(",")).is_err());
        assert_eq!(format!("{:?}", Token::new("geheim")), "Token(..)");
    }
}
