//! `qo serve` in broker mode: one process leads, the others stand by.
//!
//! The server listens before anything else, so that a standby can be asked whether it is there, and so that the address that goes into the
//! record of who leads is one that answers. On a stop it takes no more requests, closes the queue, and gives the leadership up.

use std::net::SocketAddr;
use std::sync::Arc;

use qo_remote::RemoteConfig;
use qo_server::{Server, ServerConfig};

use super::tell;
use crate::args::ServeArgs;
use crate::connection;
use crate::failure::Failure;
use crate::session::Session;
use crate::signals::Stop;

pub(super) async fn run(
    args: &ServeArgs,
    mut config: ServerConfig,
    mut stop: Stop,
    session: &mut Session,
) -> Result<(), Failure> {
    // Whoever starts the broker vouches for the name by which others reach it.
    config
        .hosts
        .extend(check(args.advertise.as_deref(), args.listen)?);
    let mut broker = tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        broker = connection::prepare(session).open_broker() => broker?,
    };
    config.leader = Some(Arc::new(broker.handle()));
    let server = Server::bind(broker.queue(), config).await?;
    let address = args.advertise.clone().unwrap_or_else(|| server.url());
    tell(&server, session)?;
    let serving = server.run_until(stop.asked());
    tokio::select! {
        biased;
        () = serving => {}
        // It goes on for as long as the process does.
        () = broker.run(&address) => {}
    }
    broker.close().await;
    Ok(())
}

/// Makes sure that clients and other brokers can be told where this one is, and gives the host that they are told.
fn check(advertise: Option<&str>, listen: SocketAddr) -> Result<Option<String>, Failure> {
    match advertise {
        Some(url) => match RemoteConfig::parse(url) {
            Ok(config) => match config.servers.as_slice() {
                [server] => Ok(server.host_str().map(str::to_owned)),
                _ => Err(Failure::bad_input(
                    "--advertise takes one URL: that of this process",
                )),
            },
            Err(error) => Err(Failure::bad_input(format!("--advertise: {error}"))),
        },
        None if listen.ip().is_unspecified() => Err(Failure::bad_input(format!(
            "{listen} does not say where others reach this broker"
        ))
        .hint("add --advertise with its URL, such as https://queue-1.example.org:7777")),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_url_that_others_can_reach() {
        let listen = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(check(None, listen("10.0.0.5:7777")).is_ok());
        let host = check(Some("https://a:1"), listen("0.0.0.0:7777")).unwrap();
        assert_eq!(host.as_deref(), Some("a"));
        let failure = check(None, listen("[::]:7777")).unwrap_err();
        assert!(failure.hint.unwrap().contains("--advertise"));
        for bad in ["a:1", "http://a,http://b", "ftp://a", "http://u:p@a"] {
            assert!(check(Some(bad), listen("10.0.0.5:7777")).is_err(), "{bad}");
        }
    }
}
