//! Finds servers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use mdns_sd::{ResolvedService, ServiceDaemon, ServiceEvent};
use qo_store::runtime::Runtime;

use crate::{MdnsError, SERVICE};

/// Interval at which answers are collected.
const POLL: Duration = Duration::from_millis(50);
/// Maximum number of servers, in case somebody floods the network.
const SERVERS_MAX: usize = 1_000;

/// A server that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The name under which it is announced.
    pub name: String,
    /// Its addresses, the most useful one first.
    pub addresses: Vec<IpAddr>,
    /// Its port.
    pub port: u16,
    /// Whether it uses TLS.
    pub tls: bool,
    /// Its version, if it says so.
    pub version: Option<String>,
    /// The path of its API, which starts with a slash.
    pub path: String,
}

impl Server {
    /// The URL of the server, by its first address.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let host = match self.addresses.first() {
            Some(IpAddr::V6(address)) => format!("[{address}]"),
            Some(IpAddr::V4(address)) => address.to_string(),
            None => String::new(),
        };
        let path = self.path.trim_end_matches('/');
        format!("{scheme}://{host}:{}{path}", self.port)
    }

    /// Whether a token may be sent to it: it is on this machine, or has to prove its identity by TLS.
    pub fn is_safe_for_secrets(&self) -> bool {
        self.tls || self.addresses.first().is_some_and(IpAddr::is_loopback)
    }

    fn new(service: &ResolvedService) -> Option<Self> {
        let mut addresses: Vec<IpAddr> = service
            .get_addresses()
            .iter()
            .map(mdns_sd::ScopedIp::to_ip_addr)
            .collect();
        addresses.sort_by_key(|address| (rank(address), *address));
        if addresses.is_empty() {
            return None;
        }
        let text = |key| {
            let value = service.get_property_val_str(key)?;
            Some(value.to_owned()).filter(|value| value.chars().all(is_plain))
        };
        let name = service.get_fullname().strip_suffix(SERVICE)?;
        let name = name.strip_suffix('.').unwrap_or(name);
        Some(Self {
            // A second server of the same name is called `name (2)`.
            name: Some(name.to_owned())
                .filter(|name| name.chars().all(|c| c == ' ' || is_plain(c)))?,
            addresses,
            port: text("http_port")
                .and_then(|port| port.parse().ok())
                .unwrap_or(service.get_port()),
            tls: text("scheme").as_deref() == Some("https"),
            version: text("version"),
            path: text("path")
                .filter(|path| path.starts_with('/'))
                .unwrap_or_else(|| "/".to_owned()),
        })
    }
}

/// Text from the network that is safe to show and to use in a URL.
fn is_plain(c: char) -> bool {
    c.is_ascii_graphic()
}

/// Addresses that more clients can use come first.
fn rank(address: &IpAddr) -> u8 {
    match address {
        _ if address.is_loopback() => 4,
        IpAddr::V4(address) if address.is_link_local() => 2,
        IpAddr::V4(_) => 0,
        // Link-local addresses need a scope, which a URL cannot carry.
        IpAddr::V6(address) if address.segments()[0] & 0xffc0 == 0xfe80 => 3,
        IpAddr::V6(_) => 1,
    }
}

/// Asks for servers and collects answers for this long, or until the server with the wanted name has answered. Returns them by name.
///
/// Questions and answers can be lost. The question is repeated after one second and after three.
pub async fn discover(
    runtime: &dyn Runtime,
    timeout: Duration,
    wanted: Option<&str>,
) -> Result<Vec<Server>, MdnsError> {
    let daemon = ServiceDaemon::new()?;
    let answers = daemon.browse(SERVICE)?;
    let mut servers = BTreeMap::new();
    let started_at = runtime.monotonic();
    loop {
        while let Ok(event) = answers.try_recv() {
            match event {
                ServiceEvent::ServiceResolved(service) => {
                    if let Some(server) = Server::new(&service)
                        && servers.len() < SERVERS_MAX
                    {
                        servers.insert(service.get_fullname().to_owned(), server);
                    }
                }
                ServiceEvent::ServiceRemoved(_, name) => {
                    servers.remove(&name);
                }
                _ => {}
            }
        }
        let elapsed = runtime.monotonic().saturating_sub(started_at);
        let left = timeout.saturating_sub(elapsed);
        let is_found = |name| servers.values().any(|server: &Server| server.name == name);
        if left.is_zero() || wanted.is_some_and(is_found) {
            break;
        }
        runtime.sleep(POLL.min(left)).await;
    }
    if let Err(error) = daemon.shutdown() {
        tracing::debug!(%error, "cannot stop multicast DNS");
    }
    Ok(servers.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(addresses: &[&str]) -> Server {
        Server {
            name: "laptop-7777".to_owned(),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            port: 7777,
            tls: false,
            version: None,
            path: "/".to_owned(),
        }
    }

    #[test]
    fn urls_use_the_first_address() {
        assert_eq!(server(&["10.0.0.5"]).url(), "http://10.0.0.5:7777");
        let mut secure = server(&["fd00::1", "10.0.0.5"]);
        secure.tls = true;
        secure.path = "/queue/".to_owned();
        assert_eq!(secure.url(), "https://[fd00::1]:7777/queue");
    }

    #[test]
    fn secrets_stay_on_this_machine_unless_tls_protects_them() {
        assert!(server(&["127.0.0.1"]).is_safe_for_secrets());
        assert!(server(&["::1"]).is_safe_for_secrets());
        assert!(!server(&["10.0.0.5", "127.0.0.1"]).is_safe_for_secrets());
        let mut secure = server(&["10.0.0.5"]);
        secure.tls = true;
        assert!(secure.is_safe_for_secrets());
    }

    #[test]
    fn addresses_that_more_clients_can_use_come_first() {
        let mut addresses: Vec<IpAddr> = [
            "::1",
            "fe80::1",
            "169.254.1.1",
            "fd00::1",
            "127.0.0.1",
            "192.168.0.5",
        ]
        .map(|text| text.parse().unwrap())
        .to_vec();
        addresses.sort_by_key(|address| (rank(address), *address));
        let shown: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let expected = [
            "192.168.0.5",
            "fd00::1",
            "169.254.1.1",
            "fe80::1",
            "127.0.0.1",
            "::1",
        ];
        assert_eq!(shown, expected);
    }
}
