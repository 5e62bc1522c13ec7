//! Pings a broker over HTTP.
//!
//! A process that responds is alive, with two exceptions.
//! - The response that the address belongs to another process than the requested one. Otherwise a standby whose own address equals the
//!   leader's, such as a loopback address on two machines, would reach itself and wait forever.
//! - A server error. A leader that is cut off from the store responds that it cannot prove that it leads, and a proxy responds for a
//!   server that is dead.

use reqwest::{Client, StatusCode};

use crate::config::{InvalidServer, RemoteConfig};
use crate::transport;
use crate::wire::{BROKER_HEADER, Condition};

/// Sends requests to `{address}/healthz`.
#[derive(Debug, Clone)]
pub struct Ping {
    http: Client,
}

impl Ping {
    /// A client that also trusts these certificates, as PEM.
    pub fn new(ca_pem: Option<&[u8]>) -> Result<Self, InvalidServer> {
        let http = transport::client_for_any(None, ca_pem)?;
        Ok(Self { http })
    }

    /// Whether the process `id` responds at `address`.
    pub async fn reaches(&self, address: &str, id: &str) -> bool {
        let Ok(config) = RemoteConfig::parse(address) else {
            return false;
        };
        let Some(url) = config
            .servers
            .first()
            .and_then(|url| url.join("healthz").ok())
        else {
            return false;
        };
        let request = self.http.get(url).header(BROKER_HEADER, id).send();
        match request.await {
            Ok(response) => shows_life(response.status()),
            Err(_) => false,
        }
    }
}

/// Whether this response to a ping that names a broker shows that the broker is alive and leads.
pub(crate) fn shows_life(status: StatusCode) -> bool {
    !status.is_server_error() && status.as_u16() != Condition::Misdirected.status()
}
