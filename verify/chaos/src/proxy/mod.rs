//! The faulty way.
//!
//! A request is taken whole, then sent on whole, then its answer is taken whole: so a request whose answer is lost was applied, and one that
//! was refused was not. Each request has a connection of its own to the other side.

mod http;
mod seen;

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
use rustix::net::sockopt::set_socket_linger;

use self::http::{Answer, Request};
pub use self::seen::{Seen, Versions};
use crate::faults::{Fault, Faults};
use crate::lock;

/// A proxy that runs until the program ends.
#[derive(Debug, Clone)]
pub struct Proxy {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    upstream: SocketAddr,
    faults: Faults,
    random: Mutex<Random>,
    troubled: AtomicBool,
    outage: AtomicBool,
    struck: Mutex<BTreeMap<Fault, u64>>,
    seen: Mutex<Seen>,
    runtime: Arc<dyn Runtime>,
}

impl Proxy {
    /// Listens on a loopback port, and sends on to another address. Nothing fails until it is told so.
    pub fn start(upstream: SocketAddr, faults: Faults, random: Random) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen for the proxy")?;
        let shared = Arc::new(Shared {
            address: listener.local_addr().context("the proxy has no address")?,
            upstream,
            faults,
            random: Mutex::new(random),
            troubled: AtomicBool::new(false),
            outage: AtomicBool::new(false),
            struck: Mutex::default(),
            seen: Mutex::default(),
            runtime: TokioRuntime::shared(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&accepting);
                thread::spawn(move || {
                    // A connection that breaks is what this is about.
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Begins or ends the trouble.
    pub fn trouble(&self, on: bool) {
        self.shared.troubled.store(on, Ordering::Release);
    }

    /// How often each fault has struck.
    pub fn struck(&self) -> BTreeMap<Fault, u64> {
        lock(&self.shared.struck).clone()
    }

    /// Looks at what has reached the other side.
    pub fn seen<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&lock(&self.shared.seen))
    }
}

impl Shared {
    fn is_troubled(&self) -> bool {
        self.troubled.load(Ordering::Acquire)
    }

    /// Now and then nothing is answered.
    fn outages(&self, every: Duration) {
        loop {
            thread::sleep(every);
            if !self.is_troubled() {
                continue;
            }
            let length = lock(&self.random).millis(500, 5_000);
            self.strike(Fault::Outage);
            self.outage.store(true, Ordering::Release);
            thread::sleep(length);
            self.outage.store(false, Ordering::Release);
        }
    }

    fn strike(&self, fault: Fault) {
        *lock(&self.struck).entry(fault).or_default() += 1;
    }

    fn pause(&self, low_ms: u64, high_ms: u64) {
        let pause = lock(&self.random).millis(low_ms, high_ms);
        thread::sleep(pause);
    }

    /// What happens to the next request.
    fn draw(&self, request: &Request) -> Option<Fault> {
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
            if *fault == Fault::Conflict && !(request.method == "PUT" && is_conditional) {
                continue;
            }
            drop(random);
            self.strike(*fault);
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
                Some(Fault::Refused) => Answer::made_up(503, "SlowDown").write(&mut writer)?,
                Some(Fault::Conflict) => {
                    Answer::made_up(409, "ConditionalRequestConflict").write(&mut writer)?;
                }
                Some(Fault::Reset) => return reset(stream),
                Some(Fault::Late) => {
                    let shared = Arc::clone(self);
                    thread::spawn(move || {
                        shared.pause(500, 12_000);
                        // Nobody waits for it any more.
                        let _ = shared.forward(&request);
                    });
                    return reset(stream);
                }
                _ => {
                    if fault == Some(Fault::SlowRequest) {
                        self.pause(20, 2_500);
                    }
                    let mut answer = self.forward(&request)?;
                    match fault {
                        Some(Fault::Twice) => answer = self.forward(&request)?,
                        Some(Fault::SlowAnswer) => self.pause(20, 2_500),
                        Some(Fault::LostAnswer) => return reset(stream),
                        Some(Fault::ErrorAfter) => {
                            answer = Answer::made_up(500, "InternalError");
                        }
                        Some(Fault::TornAnswer) => {
                            answer.write_torn(&mut writer)?;
                            return stream.shutdown(Shutdown::Both);
                        }
                        _ => {}
                    }
                    answer.write(&mut writer)?;
                }
            }
        }
        Ok(())
    }

    fn forward(&self, request: &Request) -> io::Result<Answer> {
        *lock(&self.seen).requests.entry(kind(request)).or_default() += 1;
        let answer = request.send(self.upstream)?;
        if request.method == "PUT" && (200..300).contains(&answer.status) {
            // The first part of the path is the bucket.
            let key = request.path.trim_start_matches('/').split_once('/');
            if let Some((_, key)) = key {
                lock(&self.seen).applied(key, &request.body, self.runtime.now());
            }
        }
        Ok(answer)
    }
}

/// How a request is counted: a LIST is a GET of the bucket itself.
fn kind(request: &Request) -> String {
    let parts = request.path.trim_matches('/').split('/').count();
    if request.method == "GET" && parts < 2 {
        "LIST".to_owned()
    } else {
        request.method.clone()
    }
}

/// Ends a connection as a machine does that has gone.
fn reset(stream: &TcpStream) -> io::Result<()> {
    set_socket_linger(stream, Some(Duration::ZERO))?;
    stream.shutdown(Shutdown::Read)
}
