//! Free ports for a server's listeners.
//!
//! A port that is free now can be taken a moment later. Two things make that rare: ports come from below the range that
//! systems give to outgoing connections (which tests make by the thousand), and they are drawn at random. Whoever uses
//! them still has to try again with others.

use std::net::{Ipv4Addr, TcpListener};

use crate::KitError;
use crate::random;

/// Linux gives outgoing connections ports from 32768 on, other systems from 49152 on.
const LOWEST: u16 = 10_000;
const SPAN: u16 = 22_000;
const MAX_TRIES: usize = 1_000;

/// `N` different ports on 127.0.0.1 that nothing listens on.
pub fn free<const N: usize>() -> Result<[u16; N], KitError> {
    let mut ports = [0; N];
    // All are held until all are found, so that none is found twice.
    let mut held = Vec::with_capacity(N);
    for _ in 0..MAX_TRIES {
        if held.len() == N {
            return Ok(ports);
        }
        let port = LOWEST + random::bits16()? % SPAN;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            ports[held.len()] = port;
            held.push(listener);
        }
    }
    Err(KitError::NoFreePort { tries: MAX_TRIES })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ports_are_different_and_free() {
        let ports = free::<8>().unwrap();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 8);
        for port in ports {
            assert!((LOWEST..LOWEST + SPAN).contains(&port));
        }
    }
}
