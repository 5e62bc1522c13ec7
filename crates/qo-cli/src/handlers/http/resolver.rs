//! A DNS resolver that returns only public addresses.
//!
//! The client connects only to the addresses returned here, so the name is not resolved again between the check and the connection.
//! Addresses in the URL itself are not resolved; [`Target`](super::Target) checks them.

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use thiserror::Error;

use super::address::is_public;

/// The error for a name that resolves only to addresses that are not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{name} resolves to {address}, which is not on the public internet; to allow it, start the worker with --allow-private-addresses"
)]
pub(super) struct PrivateAddress {
    pub(super) name: String,
    pub(super) address: std::net::IpAddr,
}

/// Resolves names with the system's resolver and filters the addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuardedResolver {
    pub(super) allow_private: bool,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private = self.allow_private;
        Box::pin(async move {
            // The client sets the port.
            let resolved: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed = filter(name.as_str(), resolved, allow_private)?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// Removes addresses that are not allowed. Fails if none is left.
fn filter(
    name: &str,
    resolved: Vec<SocketAddr>,
    allow_private: bool,
) -> Result<Vec<SocketAddr>, PrivateAddress> {
    let rejected = resolved
        .iter()
        .map(SocketAddr::ip)
        .find(|address| !is_public(*address));
    let allowed: Vec<_> = resolved
        .into_iter()
        .filter(|address| allow_private || is_public(address.ip()))
        .collect();
    match rejected {
        Some(address) if allowed.is_empty() => Err(PrivateAddress {
            name: name.to_owned(),
            address,
        }),
        _ => Ok(allowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn private_addresses_are_removed() {
        let mixed = addresses(&["127.0.0.1:0", "8.8.8.8:0", "[::1]:0"]);
        assert_eq!(
            filter("a", mixed.clone(), false).unwrap(),
            addresses(&["8.8.8.8:0"])
        );
        assert_eq!(filter("a", mixed.clone(), true).unwrap(), mixed);
    }

    #[test]
    fn a_name_with_only_private_addresses_is_rejected() {
        let error = filter("evil.example", addresses(&["169.254.169.254:0"]), false).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("evil.example resolves to 169.254.169.254"),
            "{text}"
        );
        assert!(text.contains("--allow-private-addresses"), "{text}");
        assert_eq!(filter("a", Vec::new(), false).unwrap(), Vec::new());
    }
}
