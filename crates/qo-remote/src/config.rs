//! Which servers to ask, and with what in hand.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use url::Url;

use super::directory::Discovery;

/// How many servers can be named.
const SERVERS_MAX: usize = 16;

/// A bearer token. Its text never reaches a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Keeps a token.
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

/// What a remote engine is told.
#[derive(Debug, Clone)]
pub struct RemoteConfig {
    /// The servers, asked in this order.
    pub servers: Vec<Url>,
    /// The token, where the servers want one.
    pub token: Option<Token>,
    /// Certificates to trust beside those of the system, as PEM.
    pub ca_pem: Option<Vec<u8>>,
    /// How long one request may take, beside the time that a claim waits.
    pub request_timeout: Duration,
    /// How long a request is repeated before it is given up.
    pub retry_for: Duration,
    /// The broker that the first server must be, by its id, where it was found.
    pub broker: Option<String>,
    /// Who tells where the broker is, when the one that is known does not serve any more. The list is of no use then.
    pub discovery: Option<Arc<dyn Discovery>>,
}

/// Why a text does not name servers, or they cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidServer {
    /// It is no URL of a server.
    #[error(
        "{text:?} is no server: {problem}; write http://host:port or https://host:port, several separated by commas"
    )]
    Url {
        /// The text, cut if it is long, without what may be a secret.
        text: String,
        /// What is wrong.
        problem: String,
    },
    /// The token cannot be sent.
    #[error(
        "the token has characters that cannot be sent; copy it again from where it was created"
    )]
    Token,
    /// The certificates cannot be read.
    #[error("the certificates of QO_CA_FILE cannot be used: {0}")]
    Certificates(String),
    /// There is no way to make connections.
    #[error("connections cannot be made: {0}")]
    Client(String),
}

impl RemoteConfig {
    /// Servers named by URLs, separated by commas, with the default settings.
    pub fn parse(text: &str) -> Result<Self, InvalidServer> {
        let mut servers = Vec::new();
        for part in text.split(',') {
            servers.push(server(part.trim())?);
        }
        if servers.len() > SERVERS_MAX {
            return Err(invalid(text, format!("more than {SERVERS_MAX} servers")));
        }
        Ok(Self {
            servers,
            token: None,
            ca_pem: None,
            request_timeout: Duration::from_secs(30),
            retry_for: Duration::from_secs(30),
            broker: None,
            discovery: None,
        })
    }
}

pub(super) fn server(text: &str) -> Result<Url, InvalidServer> {
    // What stands before an @ may be a password.
    let shown = match text.rsplit_once('@') {
        Some((_, place)) => format!("...@{place}"),
        None => text.to_owned(),
    };
    let mut url = Url::parse(text).map_err(|error| invalid(&shown, error.to_string()))?;
    let problem = if !matches!(url.scheme(), "http" | "https") {
        "it is neither http nor https"
    } else if !url.username().is_empty() || url.password().is_some() {
        "it holds credentials, which belong into QO_TOKEN"
    } else if url.query().is_some() || url.fragment().is_some() {
        "it has a part behind ? or #"
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
    fn servers_are_kept_in_their_order() {
        let config = RemoteConfig::parse("http://a:1, https://b/qo").unwrap();
        let urls: Vec<_> = config.servers.iter().map(Url::as_str).collect();
        assert_eq!(urls, ["http://a:1/", "https://b/qo/"]);
    }

    #[test]
    fn what_is_no_server_is_refused_without_showing_secrets() {
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
