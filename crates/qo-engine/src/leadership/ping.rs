//! Asking a leader over HTTP whether it is alive.
//!
//! Any answer will do, also one that refuses: a process that speaks is not dead. Only one answer says the opposite: at this address is
//! another process than the one that was meant. Without that, a standby whose own address looks like the leader's, as two
//! loopback addresses on two machines do, would hear itself and wait for ever.

use async_trait::async_trait;
use reqwest::Client;

use super::IsAlive;
use crate::remote::{InvalidServer, RemoteConfig, transport};
use crate::wire::{BROKER_HEADER, Condition};

/// Asks `{address}/healthz`.
#[derive(Debug, Clone)]
pub struct HttpPing {
    http: Client,
}

impl HttpPing {
    /// A pinger that also trusts these certificates, as PEM.
    pub fn new(ca_pem: Option<&[u8]>) -> Result<Self, InvalidServer> {
        let http = transport::client_for_any(None, ca_pem)?;
        Ok(Self { http })
    }
}

#[async_trait]
impl IsAlive for HttpPing {
    async fn is_alive(&self, address: &str, id: &str) -> bool {
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
        let asked = self.http.get(url).header(BROKER_HEADER, id).send();
        match asked.await {
            Ok(answer) => answer.status().as_u16() != Condition::Misdirected.status(),
            Err(_) => false,
        }
    }
}
