//! Announces a server.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mdns_sd::{IfKind, ServiceDaemon, ServiceInfo};

use crate::{MdnsError, QUEUEY_SERVICE, SERVICE};

/// How long a stop waits until the network has been told.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum bytes of a label in a DNS name.
const LABEL_MAX_BYTES: usize = 63;

/// The announced host is not the machine's own name, for which another program may answer.
const HOST_PREFIX: &str = "qo-";

/// What a server announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Whether it uses TLS.
    pub tls: bool,
    /// Its version.
    pub version: String,
}

/// Announces a server until it is stopped or dropped.
pub struct Announcer {
    daemon: ServiceDaemon,
    name: String,
}

impl Announcer {
    /// Starts to announce a server.
    ///
    /// A server that listens on a loopback address is announced on the loopback interface only, with that address, because other
    /// machines cannot reach it.
    pub fn start(announcement: &Announcement) -> Result<Self, MdnsError> {
        let daemon = ServiceDaemon::new()?;
        let name = name(&host(), announcement.address.port());
        for service in [SERVICE, QUEUEY_SERVICE] {
            daemon.register(announcement.service(service, &name)?)?;
        }
        Ok(Self { daemon, name })
    }

    /// The name under which the server is announced.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announcer")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Drop for Announcer {
    /// Tells the network that the server is gone.
    fn drop(&mut self) {
        let stopped = self.daemon.shutdown();
        if let Ok(stopped) = stopped {
            let _ = stopped.recv_timeout(GOODBYE_TIMEOUT);
        }
    }
}

impl Announcement {
    fn service(&self, service: &str, name: &str) -> Result<ServiceInfo, MdnsError> {
        let port = self.address.port().to_string();
        let scheme = if self.tls { "https" } else { "http" };
        let properties = [
            ("http_port", port.as_str()),
            ("version", &self.version),
            ("path", "/"),
            ("scheme", scheme),
        ];
        let host = format!("{HOST_PREFIX}{name}.local.");
        let ip = self.address.ip();
        let addresses: Vec<IpAddr> = if ip.is_unspecified() {
            Vec::new()
        } else {
            vec![ip]
        };
        let info = ServiceInfo::new(
            service,
            name,
            &host,
            &addresses[..],
            self.address.port(),
            &properties[..],
        )?;
        let interfaces = match ip {
            IpAddr::V4(ip) if ip.is_loopback() => IfKind::LoopbackV4,
            IpAddr::V6(ip) if ip.is_loopback() => IfKind::LoopbackV6,
            _ => IfKind::All,
        };
        let mut info = if ip.is_unspecified() {
            info.enable_addr_auto()
        } else {
            info
        };
        info.set_interfaces(vec![interfaces]);
        Ok(info)
    }
}

/// The name of this machine.
fn host() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

/// The machine and the port: unique, and readable in a list.
fn name(host: &str, port: u16) -> String {
    let suffix = format!("-{port}");
    let host = host.split('.').next().unwrap_or_default();
    let host: String = host
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(LABEL_MAX_BYTES - suffix.len() - HOST_PREFIX.len())
        .collect();
    match host.trim_matches('-') {
        "" => format!("host{suffix}"),
        host => format!("{host}{suffix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(host: &str) -> String {
        super::name(host, 7777)
    }

    #[test]
    fn a_name_is_a_label_of_the_machine_and_the_port() {
        assert_eq!(name("laptop"), "laptop-7777");
        assert_eq!(name("laptop.example.org"), "laptop-7777");
        assert_eq!(name("Ada's laptop"), "Ada-s-laptop-7777");
        assert_eq!(name(""), "host-7777");
        assert_eq!(name("ÄÖ"), "host-7777");
        assert_eq!(name(&"x".repeat(300)).len(), LABEL_MAX_BYTES - 3);
    }
}
