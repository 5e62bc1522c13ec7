//! The connections between nodes, through proxies that hold what an isolated node sends and receives.
//!
//! Held bytes are delivered when the node is connected again, so late messages are part of the tests.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(20);
/// The place of the caller's number in a greeting, behind the name of the cluster, and that of the length of this name.
const NAME_LENGTH_AT: usize = 12;

/// The proxies in front of the nodes.
#[derive(Debug, Clone)]
pub(super) struct Links {
    ports: Vec<u16>,
    isolated: Isolated,
}

/// The nodes that are cut off from the others.
#[derive(Debug, Clone, Default)]
struct Isolated(Arc<Mutex<BTreeSet<u64>>>);

impl Isolated {
    /// Waits until both nodes are connected to the others.
    fn wait(&self, between: [u64; 2]) {
        while between
            .iter()
            .any(|node| self.0.lock().unwrap().contains(node))
        {
            thread::sleep(PAUSE);
        }
    }
}

impl Links {
    /// Starts a proxy in front of each node. Node 1 listens on the first port.
    pub(super) fn start(nodes: &[u16]) -> Self {
        let isolated = Isolated::default();
        let ports = nodes.iter().zip(1..).map(|(port, node)| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let (own, port, isolated) = (listener.local_addr().unwrap(), *port, isolated.clone());
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let isolated = isolated.clone();
                    // Connections end when a node does.
                    thread::spawn(move || connect(stream, node, port, &isolated));
                }
            });
            own.port()
        });
        Self {
            ports: ports.collect(),
            isolated,
        }
    }

    /// The port at which the others reach a node.
    pub(super) fn port(&self, node: usize) -> u16 {
        self.ports[node - 1]
    }

    /// Cuts a node off from the others.
    pub(super) fn isolate(&self, node: usize) {
        self.isolated.0.lock().unwrap().insert(node as u64);
    }

    /// Connects all nodes again.
    pub(super) fn heal(&self) {
        self.isolated.0.lock().unwrap().clear();
    }
}

/// Connects a caller to a node.
fn connect(mut caller: TcpStream, to: u64, port: u16, isolated: &Isolated) -> io::Result<()> {
    let mut length = [0; 4];
    caller.read_exact(&mut length)?;
    let mut greeting = vec![0; u32::from_be_bytes(length) as usize];
    caller.read_exact(&mut greeting)?;
    let name = u32::from_be_bytes(greeting[NAME_LENGTH_AT..][..4].try_into().unwrap());
    let from_at = NAME_LENGTH_AT + 4 + name as usize;
    let from = u64::from_be_bytes(greeting[from_at..][..8].try_into().unwrap());
    isolated.wait([from, to]);
    let mut called = TcpStream::connect(("127.0.0.1", port))?;
    caller.set_nodelay(true)?;
    called.set_nodelay(true)?;
    called.write_all(&length)?;
    called.write_all(&greeting)?;
    let back = (called.try_clone()?, caller.try_clone()?, isolated.clone());
    thread::spawn(move || pass_on(back.0, back.1, [from, to], &back.2));
    pass_on(caller, called, [from, to], isolated);
    Ok(())
}

/// Passes bytes on until one side ends.
fn pass_on(mut source: TcpStream, mut target: TcpStream, between: [u64; 2], isolated: &Isolated) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = source.read(&mut buffer) {
        isolated.wait(between);
        if target.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // The other side may have ended first.
    let _ = target.shutdown(Shutdown::Both);
    let _ = source.shutdown(Shutdown::Both);
}
