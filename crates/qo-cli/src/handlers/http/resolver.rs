//! Names to addresses, for connections that must stay on the public internet.
//!
//! The client connects to what this answers and to nothing else, so that no second look at the name lies between the check and
//! the connection. Addresses that stand in the URL itself never come here; [`Target`](super::Target) checks them.

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use thiserror::Error;

use super::address::is_public;

/// A name that leads only to addresses where no request may go.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{name} leads to {address}, which is not on the public internet; if that is meant, start the worker with --allow-private-addresses"
)]
pub(super) struct PrivateAddress {
    pub(super) name: String,
    pub(super) address: std::net::IpAddr,
}

/// Resolves names as the system does.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuardedResolver {
    pub(super) allow_private: bool,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private = self.allow_private;
        Box::pin(async move {
            // The port is put in by the client.
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let passed = pass(name.as_str(), found, allow_private)?;
            Ok(Box::new(passed.into_iter()) as Addrs)
        })
    }
}

/// The addresses where a request may go. If there are others beside them, those are left out.
fn pass(
    name: &str,
    found: Vec<SocketAddr>,
    allow_private: bool,
) -> Result<Vec<SocketAddr>, PrivateAddress> {
    let refused = found
        .iter()
        .map(SocketAddr::ip)
        .find(|address| !is_public(*address));
    let passed: Vec<_> = found
        .into_iter()
        .filter(|address| allow_private || is_public(address.ip()))
        .collect();
    match refused {
        Some(address) if passed.is_empty() => Err(PrivateAddress {
            name: name.to_owned(),
            address,
        }),
        _ => Ok(passed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_public_addresses_are_left() {
        let mixed = addresses(&["127.0.0.1:0", "8.8.8.8:0", "[::1]:0"]);
        assert_eq!(
            pass("a", mixed.clone(), false).unwrap(),
            addresses(&["8.8.8.8:0"])
        );
        assert_eq!(pass("a", mixed.clone(), true).unwrap(), mixed);
    }

    #[test]
    fn a_name_that_leads_nowhere_else_is_refused() {
        let error = pass("evil.example", addresses(&["169.254.169.254:0"]), false).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("evil.example leads to 169.254.169.254"),
            "{text}"
        );
        assert!(text.contains("--allow-private-addresses"), "{text}");
        assert_eq!(pass("a", Vec::new(), false).unwrap(), Vec::new());
    }
}
