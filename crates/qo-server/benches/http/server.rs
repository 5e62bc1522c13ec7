//! The server process: a broker on a store with the latency of S3.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use qo::{BrokerEngine, Queue};
use qo_broker::SlateConfig;
use qo_server::{Server, ServerConfig};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::TokioRuntime;
use qo_store::wrap::{Delay, LatencyStore};

const LATENCY: Duration = Duration::from_millis(30);

/// Serves until the other end of its standard input is closed.
pub(crate) async fn serve() {
    let runtime = TokioRuntime::shared();
    let store = LatencyStore::new(
        Arc::new(InMemory::new()),
        Arc::clone(&runtime),
        Delay::Fixed(LATENCY),
        1,
    );
    let engine = BrokerEngine::slate(
        Arc::new(store),
        Arc::new(StoreClock::new()),
        Arc::clone(&runtime),
        ClientConfig::default(),
        SlateConfig::default(),
    )
    .await
    .unwrap();
    let queue = Queue::new(Arc::new(engine), runtime);
    let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
    let server = Server::bind(queue.clone(), config).await.unwrap();
    println!("{}", server.url());
    let left_alone = tokio::task::spawn_blocking(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    });
    server
        .run_until(async {
            let _ = left_alone.await;
        })
        .await;
    queue.close().await;
}
