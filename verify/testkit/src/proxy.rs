//! A proxy in front of a server, for tests that decide the fate of each request.

use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use crate::http::{Request, Response};

/// What becomes of a request.
#[derive(Debug, Clone)]
pub enum Fate {
    /// The server gets it and answers it.
    Forward,
    /// The proxy answers it. The server does not get it.
    Answer(Response),
    /// The server does not get it, and the connection ends.
    Drop,
    /// The server gets it, and the connection ends without a response.
    LoseResponse,
    /// The server does not get it, and nobody answers until the client gives up.
    Hang,
}

type Decide = dyn Fn(&Request) -> Fate + Send + Sync;

/// A proxy on a loopback port. It runs until the process ends.
#[derive(Debug, Clone, Copy)]
pub struct Proxy {
    address: SocketAddr,
}

impl Proxy {
    /// Starts a proxy in front of `upstream`, whose requests meet the fate that `decide` returns.
    pub fn start(
        upstream: SocketAddr,
        decide: impl Fn(&Request) -> Fate + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let decide: Arc<Decide> = Arc::new(decide);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let decide = Arc::clone(&decide);
                thread::spawn(move || {
                    // Broken connections are part of the tests.
                    let _ = serve(&stream, upstream, decide.as_ref());
                });
            }
        });
        Ok(Self { address })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn serve(stream: &TcpStream, upstream: SocketAddr, decide: &Decide) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    while let Some(request) = Request::read(&mut reader)? {
        match decide(&request) {
            Fate::Forward => request.send(upstream)?.write(&mut writer)?,
            Fate::Answer(response) => response.write(&mut writer)?,
            Fate::Drop => return Ok(()),
            Fate::LoseResponse => {
                request.send(upstream)?;
                return Ok(());
            }
            // The client closes the connection when it gives up.
            Fate::Hang => return io::copy(&mut reader, &mut io::sink()).map(|_| ()),
        }
    }
    Ok(())
}
