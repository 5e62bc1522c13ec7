//! A server on a free port of this machine, for a queue that is somewhere else: `cargo run -p qo-server --example serve_dashboard -- s3://bucket`.
//!
//! It prints its address, serves the API and the dashboard without tokens, and stops when its standard input ends. With a second word,
//! such as `read`, it makes a token of that scope, prints it, and lets nobody in without one.

use std::process::ExitCode;

use qo_server::tokens::{NewToken, Scope};
use qo_server::{Auth, Server, ServerConfig};
use tokio::io::AsyncReadExt as _;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("serve_dashboard: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let queue = match words.next() {
        Some(url) => qo::connect(&url).await?,
        None => qo::connect_default().await?,
    };
    let mut config = ServerConfig::new("127.0.0.1:0".parse()?);
    if let Some(scope) = words.next() {
        let scope: Scope = scope.parse()?;
        let token = NewToken::draw(
            queue.world().as_ref(),
            "example".parse()?,
            [scope],
            queue.now(),
            None,
        );
        println!("{}", token.reveal());
        config.auth = Auth::given(vec![token.record]);
    }
    let server = Server::bind(queue, config).await?;
    println!("{}", server.url());
    let ended = async {
        let mut input = tokio::io::stdin();
        let mut buffer = [0; 64];
        while input.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
    };
    server.run_until(ended).await;
    Ok(())
}
