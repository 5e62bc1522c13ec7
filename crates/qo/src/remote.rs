//! Opens a queue that another process serves over HTTP.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `QO_TOKEN` | the token, if the server requires one |
//! | `QO_CA_FILE` | a PEM file of certificates to trust in addition to those of the system |

use std::sync::Arc;

#[cfg(feature = "slate")]
use qo_remote::{BrokerAddress, Discovery};
use qo_remote::{InvalidServer, RemoteConfig, RemoteEngine, Token};
use qo_store::OpenOptions;
use qo_store::runtime::Runtime;

use crate::error::Error;
use crate::queue::Queue;

/// Connects to the servers of a URL. Sends one request, so that a wrong address or token fails here.
pub(crate) async fn open(
    url: &str,
    options: &OpenOptions,
    runtime: Arc<dyn Runtime>,
) -> Result<Queue, Error> {
    connect(RemoteConfig::parse(url)?, options, runtime).await
}

/// Connects to a broker that was found in the store. `discovery` finds its successor.
#[cfg(feature = "slate")]
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
    config.ca_pem = ca_certificates(options)?;
    let engine = RemoteEngine::new(config, Arc::clone(&runtime))?;
    let info = engine.check().await?;
    tracing::debug!(?engine, version = info.version, "connected");
    let blobs = Arc::new(engine.blobs());
    Ok(Queue::new(Arc::new(engine), runtime).with_blobs(blobs))
}

/// Reads the certificates to trust in addition to those of the system.
pub(crate) fn ca_certificates(options: &OpenOptions) -> Result<Option<Vec<u8>>, Error> {
    let Some(path) = options.var("QO_CA_FILE") else {
        return Ok(None);
    };
    let pem = std::fs::read(path)
        .map_err(|error| InvalidServer::Certificates(format!("{path}: {error}")))?;
    Ok(Some(pem))
}
