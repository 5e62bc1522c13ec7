//! Which connections may be open at the same time.
//!
//! A socket costs its sender nothing, so connections alone must not lock others out:
//!
//! | a new connection while | is |
//! | --- | --- |
//! | the server has room | accepted |
//! | its address has too many connections already, and is not this machine | rejected |
//! | the server is full, and some connections have sent no authorized request | accepted; the oldest of those is closed |
//! | the server is full with clients that it knows | accepted for health checks only, up to a small reserve |
//!
//! The number of connections of this machine is not limited separately, because a reverse proxy connects from there for everyone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::config::Limits;

/// How many connections beyond the maximum are accepted for health checks.
const RESERVE: usize = 32;

/// The open connections.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    max: usize,
    peer_max: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    count: usize,
    peers: BTreeMap<IpAddr, usize>,
    /// The connections without an authorized request, oldest first.
    strangers: BTreeMap<u64, Arc<Notify>>,
    next: u64,
}

/// Why a connection is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The server has the maximum of connections.
    Server,
    /// The client's address has.
    Peer,
}

/// An open connection. Dropping it makes room for another.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    limiter: Arc<ConnectionLimiter>,
    peer: IpAddr,
    number: u64,
    evicted: Arc<Notify>,
    is_known: AtomicBool,
    is_reserve: bool,
}

impl ConnectionLimiter {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            max: limits.connections_max,
            peer_max: limits.peer_connections_max,
            open: Mutex::default(),
        })
    }

    /// The number of open connections.
    pub(crate) fn count(&self) -> usize {
        self.lock().count
    }

    /// Accepts or rejects a connection.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr) -> Result<Arc<OpenConnection>, Full> {
        let peer = peer.to_canonical();
        let mut open = self.lock();
        let of_peer = open.peers.get(&peer).copied().unwrap_or(0);
        if of_peer >= self.peer_max && !peer.is_loopback() {
            return Err(Full::Peer);
        }
        let mut is_reserve = false;
        if open.count >= self.max {
            // An evicted connection counts until its task has ended, so the count can exceed the maximum for a moment.
            let is_flooded = open.count >= self.max.saturating_mul(2).max(self.max + RESERVE);
            match open.strangers.pop_first() {
                Some((_, oldest)) if !is_flooded => oldest.notify_one(),
                _ if open.count < self.max + RESERVE => is_reserve = true,
                _ => return Err(Full::Server),
            }
        }
        open.count += 1;
        *open.peers.entry(peer).or_default() += 1;
        let number = open.next;
        open.next += 1;
        let evicted = Arc::new(Notify::new());
        open.strangers.insert(number, Arc::clone(&evicted));
        Ok(Arc::new(OpenConnection {
            limiter: Arc::clone(self),
            peer,
            number,
            evicted,
            is_known: AtomicBool::new(false),
            is_reserve,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnection {
    /// Notes that the client may use the server, so that its connection is not closed in favour of others.
    pub(crate) fn set_known(&self) {
        if !self.is_known.swap(true, Ordering::Relaxed) {
            self.limiter.lock().strangers.remove(&self.number);
        }
    }

    /// Whether it was accepted for health checks only.
    pub(crate) fn is_reserve(&self) -> bool {
        self.is_reserve
    }

    /// Waits until the connection must be closed in favour of another.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut open = self.limiter.lock();
        open.count = open.count.saturating_sub(1);
        open.strangers.remove(&self.number);
        if let Some(count) = open.peers.get_mut(&self.peer) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.peers.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(max: usize, peer_max: usize) -> Arc<ConnectionLimiter> {
        let limits = Limits {
            connections_max: max,
            peer_connections_max: peer_max,
            ..Limits::default()
        };
        ConnectionLimiter::new(&limits)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn a_full_server_closes_the_oldest_stranger() {
        let limiter = limiter(3, 100);
        let local = address("127.0.0.1");
        let connections: Vec<_> = (0..3).map(|_| limiter.enter(local).unwrap()).collect();
        connections[0].set_known();
        let another = limiter.enter(local).unwrap();
        assert!(!another.is_reserve());
        connections[1].evicted().await;
        drop(connections);
        assert_eq!(limiter.count(), 1);
    }

    #[test]
    fn known_clients_leave_room_for_health_checks_only() {
        let limiter = limiter(2, 100);
        let local = address("127.0.0.1");
        let known: Vec<_> = (0..2).map(|_| limiter.enter(local).unwrap()).collect();
        for connection in &known {
            connection.set_known();
        }
        let reserve = limiter.enter(local).unwrap();
        assert!(reserve.is_reserve());
        drop(known);
        assert!(!limiter.enter(local).unwrap().is_reserve());
    }

    #[test]
    fn one_address_cannot_take_everything_but_this_machine_can() {
        let limiter = limiter(10, 2);
        let far = address("203.0.113.7");
        let kept: Vec<_> = (0..2).map(|_| limiter.enter(far).unwrap()).collect();
        assert_eq!(limiter.enter(far).unwrap_err(), Full::Peer);
        assert_eq!(
            limiter.enter(address("::ffff:203.0.113.7")).unwrap_err(),
            Full::Peer,
            "the same address in its other form"
        );
        limiter.enter(address("203.0.113.8")).unwrap();
        let local: Vec<_> = (0..5)
            .map(|_| limiter.enter(address("::1")).unwrap())
            .collect();
        assert_eq!(local.len(), 5);
        drop(kept);
        limiter.enter(far).unwrap();
    }

    #[test]
    fn a_flood_of_strangers_is_bounded() {
        let limiter = limiter(100, usize::MAX);
        let local = address("127.0.0.1");
        let mut kept = Vec::new();
        let rejected = (0..1_000)
            .filter(|_| match limiter.enter(local) {
                Ok(connection) => {
                    kept.push(connection);
                    false
                }
                Err(_) => true,
            })
            .count();
        assert_eq!(limiter.count(), kept.len());
        assert!(kept.len() <= 200, "{}", kept.len());
        assert_eq!(rejected + kept.len(), 1_000);
    }
}
