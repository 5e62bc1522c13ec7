//! Serves a queue from your own program.
//!
//! ```sh
//! cargo run -p qo-server --example serve                            # a queue in memory, http://127.0.0.1:7777/docs
//! cargo run -p qo-server --example serve 127.0.0.1:8000 sqlite:q.db
//! ```

use std::env;
use std::error::Error;

use qo_server::{Server, ServerConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:7777".to_owned());
    let store = arguments.next().unwrap_or_else(|| "memory:".to_owned());
    let queue = qo::connect(&store).await?;
    let server = Server::bind(queue.clone(), ServerConfig::new(address.parse()?)).await?;
    println!(
        "{store} at {}, reference at {}/docs",
        server.url(),
        server.url()
    );
    // Pass a future here that completes when the server should stop gracefully.
    server.run_until(std::future::pending()).await;
    queue.close().await;
    Ok(())
}
