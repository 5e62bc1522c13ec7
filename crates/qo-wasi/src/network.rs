//! Which peers programs may connect to. By default there are none.
//!
//! | use of the network | nothing granted | some peers granted | everything granted |
//! | --- | --- | --- | --- |
//! | connect to a peer, send it datagrams, receive its datagrams | no | yes | yes |
//! | the same with any other address | no | no | yes |
//! | listen, accept connections, choose the local address or port | no | no | yes |
//! | resolve names | no | if a peer is granted by its name; any name then | yes |
//!
//! Programs connect to addresses, not to names. So the name of a granted peer is resolved again at each connection, and the connection is
//! refused unless its address is among the answers.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::sockets::SocketAddrUse;

use crate::grants::GrantsError;

/// The word that grants the whole network.
const ALL: &str = "all";
/// Maximum length of a host name.
const NAME_MAX_CHARS: usize = 253;

/// The peers that programs may connect to. Preview 1 modules cannot open connections even so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Network {
    /// None.
    #[default]
    Denied,
    /// These, over TCP and UDP.
    Peers(Vec<Peer>),
    /// Every address that the host can reach, in both directions.
    Everything,
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    host: Host,
    /// Any port if absent.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    Name(String),
}

impl FromStr for Peer {
    type Err = GrantsError;

    /// Parses `HOST:PORT`. The host is a name or an address, an IPv6 address in brackets; the port can be `*`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: GrantsError = GrantsError(
            "expected HOST:PORT, such as db.example.org:5432, 10.0.0.7:* or [fd00::7]:443, or all",
        );
        let (host, port) = text.rsplit_once(':').ok_or(EXPECTED)?;
        let port = match port {
            "*" => None,
            port => match port.parse() {
                Ok(0) | Err(_) => return Err(EXPECTED),
                Ok(port) => Some(port),
            },
        };
        let in_brackets = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = if let Some(address) = in_brackets {
            Host::Address(IpAddr::V6(address.parse().map_err(|_| EXPECTED)?))
        } else if let Ok(address) = host.parse() {
            Host::Address(IpAddr::V4(address))
        } else if is_name(host) {
            Host::Name(host.to_owned())
        } else {
            return Err(EXPECTED);
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
            Host::Address(address) => write!(f, "{address}")?,
            Host::Name(name) => f.write_str(name)?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => f.write_str(":*"),
        }
    }
}

/// Whether this is a host name, and not an address with a mistake in it.
fn is_name(host: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    host.len() <= NAME_MAX_CHARS
        && host.chars().all(is_allowed)
        && host.chars().any(|c| c.is_ascii_alphabetic())
}

impl Network {
    /// Parses a list of peers. The word `all` grants everything.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, GrantsError> {
        let mut peers = Vec::new();
        let mut everything = false;
        for word in words {
            if word == ALL {
                everything = true;
            } else {
                peers.push(word.parse()?);
            }
        }
        Ok(match everything {
            true => Self::Everything,
            false if peers.is_empty() => Self::Denied,
            false => Self::Peers(peers),
        })
    }

    /// Grants this to one program. The builder allows no protocol unless it is told to, whatever addresses it allows.
    pub(crate) fn apply(&self, builder: &mut WasiCtxBuilder) {
        let is_granted = *self != Self::Denied;
        builder.allow_tcp(is_granted).allow_udp(is_granted);
        match self {
            Self::Denied => {}
            Self::Everything => {
                builder.inherit_network().allow_ip_name_lookup(true);
            }
            Self::Peers(peers) => {
                let has_name = |peer: &Peer| matches!(peer.host, Host::Name(_));
                builder.allow_ip_name_lookup(peers.iter().any(has_name));
                let peers: Arc<[Peer]> = peers.as_slice().into();
                builder.socket_addr_check(move |address, usage| check(&peers, address, usage));
            }
        }
    }
}

/// Whether a program may use an address.
fn check(
    peers: &Arc<[Peer]>,
    address: SocketAddr,
    usage: SocketAddrUse,
) -> Pin<Box<dyn Future<Output = bool> + Send + Sync>> {
    match usage {
        // A socket that connects or sends is bound to some free port first.
        SocketAddrUse::TcpBind | SocketAddrUse::UdpBind => {
            let is_free_choice = address.ip().is_unspecified() && address.port() == 0;
            Box::pin(async move { is_free_choice })
        }
        SocketAddrUse::TcpListen | SocketAddrUse::TcpAccept => Box::pin(async { false }),
        SocketAddrUse::TcpConnect | SocketAddrUse::UdpSend | SocketAddrUse::UdpReceive => {
            let peers = Arc::clone(peers);
            Box::pin(async move { is_peer(&peers, address).await })
        }
    }
}

/// Whether an address is that of a granted peer.
async fn is_peer(peers: &[Peer], address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    let with_port = || {
        peers
            .iter()
            .filter(|peer| peer.port.is_none_or(|port| port == address.port()))
    };
    if with_port().any(|peer| matches!(peer.host, Host::Address(host) if host.to_canonical() == ip))
    {
        return true;
    }
    for peer in with_port() {
        if let Host::Name(name) = &peer.host
            && let Ok(mut answers) = tokio::net::lookup_host((name.as_str(), address.port())).await
            && answers.any(|answer| answer.ip().to_canonical() == ip)
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_have_a_host_and_a_port() {
        for text in ["db.example.org:5432", "10.0.0.7:*", "[fd00::7]:443"] {
            assert_eq!(text.parse::<Peer>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "db",
            "db:",
            ":1",
            "db:0",
            "db:65536",
            "db:http",
            "fd00::7:443",
            "[fd00::7",
            "10.0.0:1",
            "10.0.0.300:1",
            "a b:1",
            "http://db:1",
            "*:1",
        ] {
            assert!(bad.parse::<Peer>().is_err(), "{bad}");
        }
        assert!(format!("{}:1", "a".repeat(254)).parse::<Peer>().is_err());
    }

    #[test]
    fn a_list_of_peers_is_narrow_unless_it_says_all() {
        assert_eq!(Network::parse([]), Ok(Network::Denied));
        let peer = "10.0.0.7:*".parse().unwrap();
        assert_eq!(
            Network::parse(["10.0.0.7:*"]),
            Ok(Network::Peers(vec![peer]))
        );
        assert_eq!(
            Network::parse(["10.0.0.7:*", "all"]),
            Ok(Network::Everything)
        );
        assert!(Network::parse(["everything"]).is_err());
    }

    #[tokio::test]
    async fn only_granted_peers_can_be_reached_and_nothing_can_listen() {
        let words = ["127.0.0.2:80", "[fd00::7]:*", "localhost:81"];
        let peers: Arc<[Peer]> = words.map(|word| word.parse().unwrap()).into();
        let may = async |address: &str, usage| check(&peers, address.parse().unwrap(), usage).await;
        for (address, expected) in [
            ("127.0.0.2:80", true),
            ("[::ffff:127.0.0.2]:80", true),
            ("127.0.0.2:81", false),
            ("127.0.0.3:80", false),
            ("[fd00::7]:9", true),
            ("[fd00::8]:9", false),
            // By its name.
            ("127.0.0.1:81", true),
            ("127.0.0.1:80", false),
        ] {
            for usage in [
                SocketAddrUse::TcpConnect,
                SocketAddrUse::UdpSend,
                SocketAddrUse::UdpReceive,
            ] {
                assert_eq!(may(address, usage).await, expected, "{address} {usage:?}");
            }
            assert!(!may(address, SocketAddrUse::TcpListen).await);
            assert!(!may(address, SocketAddrUse::TcpAccept).await);
            assert!(!may(address, SocketAddrUse::TcpBind).await);
        }
        assert!(may("0.0.0.0:0", SocketAddrUse::TcpBind).await);
        assert!(may("[::]:0", SocketAddrUse::UdpBind).await);
        assert!(!may("0.0.0.0:8080", SocketAddrUse::TcpBind).await);
    }
}
