//! A leader that runs and is reachable, but does not reach the store.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::process::{BrokerProcess, get};
use super::task;
use crate::e2e::cli::TestCli;

/// Forwards connections to the store until it is cut.
struct Forwarder {
    address: String,
    is_cut: Arc<AtomicBool>,
}

impl Forwarder {
    fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_cut = Arc::new(AtomicBool::new(false));
        let (server, cut) = (server.to_owned(), Arc::clone(&is_cut));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(&server) else {
                    continue;
                };
                let (back, forth) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
                let (cut, also_cut) = (Arc::clone(&cut), Arc::clone(&cut));
                std::thread::spawn(move || forward(client, forth, &cut));
                std::thread::spawn(move || forward(upstream, back, &also_cut));
            }
        });
        Self { address, is_cut }
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }
}

/// Copies bytes until the connection ends. After the cut it swallows them, as a network without a route does.
fn forward(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 16 * 1024];
    loop {
        match from.read(&mut bytes) {
            Ok(0) | Err(_) if is_cut.load(Ordering::Relaxed) => {
                std::thread::sleep(Duration::from_secs(1));
            }
            Ok(0) | Err(_) => {
                let _ = to.shutdown(std::net::Shutdown::Both);
                return;
            }
            Ok(_) if is_cut.load(Ordering::Relaxed) => {}
            Ok(length) => {
                if to.write_all(&bytes[..length]).is_err() {
                    return;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_from_the_store_is_replaced() {
    let cli = TestCli::seaweedfs().with_engine("slate");
    let endpoint = cli.variable("S3_ENDPOINT");
    let forwarder = Forwarder::to(endpoint.trim_start_matches("http://"));
    let through = format!("http://{}", forwarder.address);
    let variables = [("S3_ENDPOINT", through.as_str())];
    let first = BrokerProcess::start_with(&cli, "first", &[], &variables);
    first.wait_for_log("serving as the leader");
    let second = BrokerProcess::standby(&cli, "second");
    let queue = cli.connection().open().await.unwrap();
    let before = queue.submit(task()).await.unwrap().task.id;

    forwarder.cut();
    // The client asks the first broker until the second one leads.
    let after = queue.submit(task()).await.unwrap().task.id;
    second.wait_for_log("serving as the leader");
    for id in [before, after] {
        assert_eq!(queue.get(id).await.unwrap().status, qo::Status::Pending);
    }
    // The first one still runs.
    assert_eq!(get(format!("{}/healthz", first.url)).await.0, 200);
}
