//! The members of a cluster.

use serde::{Deserialize, Serialize};

use crate::RemoteConfig;

/// The most entries of the log in one response.
pub const LOG_MAX: usize = 1_000;

/// A member to add to a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemberBody {
    /// Where the other nodes reach it, as `host:port`.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub address: String,
    /// The URL at which clients reach it.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub url: String,
}

impl MemberBody {
    /// Whether the address has a host and a port, and the URL is one of a server. The error says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let has_port = self.address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if !has_port
            || self
                .address
                .contains(|c: char| c.is_whitespace() || c.is_control())
        {
            return Err("the address for nodes must be HOST:PORT".to_owned());
        }
        let config = RemoteConfig::parse(&self.url).map_err(|error| error.to_string())?;
        let is_http = self.url.starts_with("http://") || self.url.starts_with("https://");
        if config.servers.len() != 1 || !is_http {
            return Err(
                "the URL for clients must be that of one server, http:// or https://".to_owned(),
            );
        }
        Ok(())
    }
}

/// Which entries of a node's log to read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct LogQuery {
    /// The group, from 0; 0 by default.
    pub group: Option<u16>,
    /// The first entry; by default the first that is kept.
    pub from: Option<u64>,
    /// The most entries.
    #[cfg_attr(feature = "openapi", param(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub limit: Option<usize>,
}
