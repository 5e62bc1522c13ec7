//! The URL `mdns:`: the server that answers on the local network.

use std::time::Duration;

use qo_mdns::{MdnsError, Server, discover};
use qo_store::runtime::Runtime;

/// How long servers have to answer if the only one is wanted. A server answers within 120 ms; a lost question is repeated after a second.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a server with a name has to answer. The search ends when it does.
const NAMED_ANSWER_TIMEOUT: Duration = Duration::from_millis(3_500);

/// No single server could be found on the local network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerSearchError {
    /// Multicast DNS does not work.
    #[error(transparent)]
    Mdns(#[from] MdnsError),
    /// Nobody answered.
    #[error(
        "no server answered on the local network: start one with `qo serve --mdns`, or use its URL"
    )]
    NoAnswer,
    /// Nobody with this name answered.
    #[error(
        "no server named {name:?} answered on the local network; {}",
        others(found)
    )]
    NoSuchName {
        /// The name.
        name: String,
        /// The names of those that answered.
        found: Vec<String>,
    },
    /// It is not clear which server is meant.
    #[error("several servers answered: {}; choose one with mdns:NAME", found.join(", "))]
    Several {
        /// Names and URLs of those that answered.
        found: Vec<String>,
    },
    /// A token would be sent to a server that could be anyone.
    #[error(
        "the token is not sent to {url}: any machine can answer on the local network, and this server does not use TLS; if you trust \
         it, use its URL as the store"
    )]
    TokenInClear {
        /// The URL of the server.
        url: String,
    },
}

fn others(found: &[String]) -> String {
    if found.is_empty() {
        "nobody else did either".to_owned()
    } else {
        format!("{} did", found.join(", "))
    }
}

/// Finds the server with this name, or the only one if the name is empty. Returns its URL.
pub(crate) async fn find(
    name: &str,
    has_token: bool,
    runtime: &dyn Runtime,
) -> Result<String, ServerSearchError> {
    let (timeout, wanted) = match name {
        "" => (ANSWER_TIMEOUT, None),
        name => (NAMED_ANSWER_TIMEOUT, Some(name)),
    };
    let servers = discover(runtime, timeout, wanted).await?;
    choose(name, has_token, &servers)
}

fn choose(name: &str, has_token: bool, servers: &[Server]) -> Result<String, ServerSearchError> {
    let candidates: Vec<&Server> = servers
        .iter()
        .filter(|server| name.is_empty() || server.name == name)
        .collect();
    match candidates.as_slice() {
        [] if name.is_empty() => Err(ServerSearchError::NoAnswer),
        [] => Err(ServerSearchError::NoSuchName {
            name: name.to_owned(),
            found: servers.iter().map(|server| server.name.clone()).collect(),
        }),
        [server] if has_token && !server.is_safe_for_secrets() => {
            Err(ServerSearchError::TokenInClear { url: server.url() })
        }
        [server] => Ok(server.url()),
        several => Err(ServerSearchError::Several {
            found: several
                .iter()
                .map(|server| format!("{} ({})", server.name, server.url()))
                .collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, address: &str) -> Server {
        Server {
            name: name.to_owned(),
            addresses: vec![address.parse().unwrap()],
            port: 7777,
            tls: false,
            version: None,
            path: "/".to_owned(),
        }
    }

    #[test]
    fn one_answer_is_used_and_several_are_named() {
        let (here, there) = (server("here", "127.0.0.1"), server("there", "10.0.0.5"));
        let both = [here.clone(), there.clone()];
        assert_eq!(
            choose("", false, std::slice::from_ref(&there)).unwrap(),
            "http://10.0.0.5:7777"
        );
        assert_eq!(
            choose("here", true, &both).unwrap(),
            "http://127.0.0.1:7777"
        );
        let several = choose("", false, &both).unwrap_err().to_string();
        assert!(
            several.contains("here (http://127.0.0.1:7777)"),
            "{several}"
        );
        assert!(
            several.contains("there (http://10.0.0.5:7777)"),
            "{several}"
        );
        assert_eq!(choose("", false, &[]), Err(ServerSearchError::NoAnswer));
        let missing = choose("else", false, &both).unwrap_err().to_string();
        assert!(missing.contains("here, there did"), "{missing}");
    }

    #[test]
    fn a_token_is_not_sent_in_clear_to_another_machine() {
        let mut there = server("there", "10.0.0.5");
        let refused = choose("there", true, std::slice::from_ref(&there));
        assert!(matches!(
            refused,
            Err(ServerSearchError::TokenInClear { .. })
        ));
        there.tls = true;
        assert_eq!(choose("", true, &[there]).unwrap(), "https://10.0.0.5:7777");
        assert!(choose("", true, &[server("here", "127.0.0.1")]).is_ok());
    }
}
