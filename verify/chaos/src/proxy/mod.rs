//! A proxy that injects faults.
//!
//! It reads a whole request, forwards it, and reads the whole response: so a request whose response is lost was applied, and one that was
//! refused was not. Each request has a connection of its own to the upstream server.

mod observed;

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use qo_sim::random::Random;
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_testkit::http::{Request, Response};
use rustix::net::sockopt::set_socket_linger;

pub use self::observed::{Observed, Versions};
use crate::faults::{FaultKind, Faults};
use crate::lock;

/// A proxy that runs until the program ends.
#[derive(Debug, Clone)]
pub struct Proxy {
    shared: Arc<ProxyShared>,
}

#[derive(Debug)]
struct ProxyShared {
    address: SocketAddr,
    upstream: SocketAddr,
    faults: Faults,
    random: Mutex<Random>,
    troubled: AtomicBool,
    outage: AtomicBool,
    injected: Mutex<BTreeMap<FaultKind, u64>>,
    observed: Mutex<Observed>,
    runtime: Arc<dyn Runtime>,
}

impl Proxy {
    /// Listens on a loopback port and forwards to another address, without faults until [`Proxy::trouble`].
    pub fn start(upstream: SocketAddr, faults: Faults, random: Random) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("the proxy cannot listen")?;
        let shared = Arc::new(ProxyShared {
            address: listener.local_addr().context("the proxy has no address")?,
            upstream,
            faults,
            random: Mutex::new(random),
            troubled: AtomicBool::new(false),
            outage: AtomicBool::new(false),
            injected: Mutex::default(),
            observed: Mutex::default(),
            runtime: TokioRuntime::shared(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&accepting);
                thread::spawn(move || {
                    // Broken connections are expected.
                    let _ = shared.serve(&stream);
                });
            }
        });
        if let Some(every) = shared.faults.outage_every {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.outages(every));
        }
        Ok(Self { shared })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Starts or stops injecting faults.
    pub fn trouble(&self, on: bool) {
        self.shared.troubled.store(on, Ordering::Release);
    }

    /// The number of injected faults, by kind.
    pub fn injected(&self) -> BTreeMap<FaultKind, u64> {
        lock(&self.shared.injected).clone()
    }

    /// Reads what reached the upstream server.
    pub fn observed<T>(&self, read: impl FnOnce(&mut Observed) -> T) -> T {
        read(&mut lock(&self.shared.observed))
    }
}

impl ProxyShared {
    fn is_troubled(&self) -> bool {
        self.troubled.load(Ordering::Acquire)
    }

    /// Now and then no request gets a response for a while.
    fn outages(&self, every: Duration) {
        loop {
            thread::sleep(every);
            if !self.is_troubled() {
                continue;
            }
            let length = lock(&self.random).millis(500, 5_000);
            self.count(FaultKind::Outage);
            self.outage.store(true, Ordering::Release);
            thread::sleep(length);
            self.outage.store(false, Ordering::Release);
        }
    }

    fn count(&self, fault: FaultKind) {
        *lock(&self.injected).entry(fault).or_default() += 1;
    }

    fn pause(&self, low_ms: u64, high_ms: u64) {
        let pause = lock(&self.random).millis(low_ms, high_ms);
        thread::sleep(pause);
    }

    /// Draws the fault of a request.
    fn draw(&self, request: &Request) -> Option<FaultKind> {
        if !self.is_troubled() {
            return None;
        }
        let mut random = lock(&self.random);
        for (fault, rate) in &self.faults.rates {
            if !random.chance(*rate) {
                continue;
            }
            let is_conditional =
                request.header("if-match").is_some() || request.header("if-none-match").is_some();
            if *fault == FaultKind::Conflict && !(request.method == "PUT" && is_conditional) {
                continue;
            }
            drop(random);
            self.count(*fault);
            return Some(*fault);
        }
        None
    }

    fn serve(self: &Arc<Self>, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut writer = stream;
        while let Some(request) = Request::read(&mut reader)? {
            if self.is_troubled() && self.outage.load(Ordering::Acquire) {
                return reset(stream);
            }
            let fault = self.draw(&request);
            match fault {
                Some(FaultKind::Unavailable) => {
                    Response::made_up(503, "SlowDown").write(&mut writer)?;
                }
                Some(FaultKind::Conflict) => {
                    Response::made_up(409, "ConditionalRequestConflict").write(&mut writer)?;
                }
                Some(FaultKind::LostRequest) => return reset(stream),
                Some(FaultKind::LateApply) => {
                    let shared = Arc::clone(self);
                    thread::spawn(move || {
                        shared.pause(500, 12_000);
                        // No client waits for the response.
                        let _ = shared.forward(&request);
                    });
                    return reset(stream);
                }
                _ => {
                    if fault == Some(FaultKind::SlowRequest) {
                        self.pause(20, 2_500);
                    }
                    let mut response = self.forward(&request)?;
                    match fault {
                        Some(FaultKind::DuplicateApply) => response = self.forward(&request)?,
                        Some(FaultKind::SlowReply) => self.pause(20, 2_500),
                        Some(FaultKind::LostResponse) => return reset(stream),
                        Some(FaultKind::ErrorAfterApply) => {
                            response = Response::made_up(500, "InternalError");
                        }
                        Some(FaultKind::TornRead) => {
                            response.write_torn(&mut writer)?;
                            return stream.shutdown(Shutdown::Both);
                        }
                        _ => {}
                    }
                    response.write(&mut writer)?;
                }
            }
        }
        Ok(())
    }

    fn forward(&self, request: &Request) -> io::Result<Response> {
        *lock(&self.observed)
            .requests
            .entry(kind(request))
            .or_default() += 1;
        let response = request.send(self.upstream);
        // The first segment of the path is the bucket.
        let key = request.path.trim_start_matches('/').split_once('/');
        if let Some((_, key)) = key.filter(|_| request.method == "PUT") {
            let (body, now) = (&request.body, self.runtime.now());
            match response.as_ref().map(|response| response.status) {
                Ok(200..300) => lock(&self.observed).applied(key, body, now),
                // The server has refused the write.
                Ok(..500) => {}
                _ => lock(&self.observed).in_doubt(key, body, now),
            }
        }
        response
    }
}

/// The kind of a request: a LIST is a GET of the bucket itself.
fn kind(request: &Request) -> String {
    let parts = request.path.trim_matches('/').split('/').count();
    if request.method == "GET" && parts < 2 {
        "LIST".to_owned()
    } else {
        request.method.clone()
    }
}

/// Resets a connection, as if the other machine had gone.
fn reset(stream: &TcpStream) -> io::Result<()> {
    set_socket_linger(stream, Some(Duration::ZERO))?;
    stream.shutdown(Shutdown::Read)
}
