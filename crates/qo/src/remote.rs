//! A queue behind the HTTP API of another process, by its URL.
//!
//! | variable | what |
//! | --- | --- |
//! | `QO_TOKEN` | the token, where the server wants one |
//! | `QO_CA_FILE` | certificates to trust beside those of the system, as PEM |

use std::sync::Arc;

use qo_remote::RemoteEngine;
use qo_remote::{BrokerAddress, Discovery, InvalidServer, RemoteConfig, Token};
use qo_store::OpenOptions;
use qo_store::runtime::Runtime;

use crate::error::Error;
use crate::queue::Queue;

/// Whether a URL names servers and not a store.
pub fn names_servers(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// The queue of these servers. One of them is asked who it is, so that a wrong address or a wrong token is noticed here.
pub(crate) async fn open(
    url: &str,
    options: &OpenOptions,
    runtime: Arc<dyn Runtime>,
) -> Result<Queue, Error> {
    connect(RemoteConfig::parse(url)?, options, runtime).await
}

/// The queue of a broker that was found, and that is looked for again when it does not serve any more.
pub(crate) async fn open_found(
    found: &BrokerAddress,
    discovery: Arc<dyn Discovery>,
    options: &OpenOptions,
    runtime: Arc<dyn Runtime>,
) -> Result<Queue, Error> {
    let mut config = RemoteConfig::parse(&found.url)?;
    config.broker = Some(found.id.clone());
    config.discovery = Some(discovery);
    connect(config, options, runtime).await
}

async fn connect(
    mut config: RemoteConfig,
    options: &OpenOptions,
    runtime: Arc<dyn Runtime>,
) -> Result<Queue, Error> {
    config.token = options.var("QO_TOKEN").map(Token::new);
    config.ca_pem = certificates(options)?;
    let engine = RemoteEngine::new(config, Arc::clone(&runtime))?;
    let info = engine.check().await?;
    tracing::debug!(?engine, version = info.version, "connected");
    Ok(Queue::new(Arc::new(engine), runtime))
}

/// The certificates to trust beside those of the system.
pub(crate) fn certificates(options: &OpenOptions) -> Result<Option<Vec<u8>>, Error> {
    let Some(path) = options.var("QO_CA_FILE") else {
        return Ok(None);
    };
    let pem = std::fs::read(path)
        .map_err(|error| InvalidServer::Certificates(format!("{path}: {error}")))?;
    Ok(Some(pem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_told_from_stores() {
        for url in ["http://a:1", "https://a,https://b", "HTTP://a"] {
            assert!(names_servers(url), "{url}");
        }
        for url in ["s3://http", "memory:", "sqlite:http.db", "http"] {
            assert!(!names_servers(url), "{url}");
        }
    }
}
