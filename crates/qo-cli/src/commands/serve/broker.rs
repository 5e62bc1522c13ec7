//! `qo serve` in broker mode: one process leads, the others stand by.
//!
//! The server listens first. A standby then answers health checks, and the address in the leader record is one that responds. On a
//! stop, the server accepts no more requests, closes the queue and resigns its leadership.

use std::net::SocketAddr;
use std::sync::Arc;

use qo_remote::RemoteConfig;
use qo_server::{Server, ServerConfig};

use super::{announce, deliverer, ensure_writable};
use crate::args::ServeArgs;
use crate::connection;
use crate::failure::Failure;
use crate::session::Session;
use crate::signals::{Signals, close_in_time};

pub(super) async fn run(
    args: &ServeArgs,
    mut config: ServerConfig,
    signals: &Signals,
    session: &mut Session,
) -> Result<(), Failure> {
    // Others reach the broker under this name. Unless it is a name of this machine, the server requires tokens.
    config
        .hosts
        .extend(advertised_host(args.advertise.as_deref(), args.listen)?);
    let preparing = async {
        let broker = connection::prepare(session).open_broker().await?;
        ensure_writable(session).await?;
        config.leader = Some(Arc::new(broker.handle()));
        let server = Server::bind(broker.queue(), config).await?;
        Ok::<_, Failure>((broker, server))
    };
    let (mut broker, server) = tokio::select! {
        biased;
        () = signals.stop.cancelled() => return Ok(()),
        prepared = preparing => prepared?,
    };
    let address = args.advertise.clone().unwrap_or_else(|| server.url());
    let handle = broker.handle();
    let deliverer = deliverer(args, &server, session, move || handle.is_confirmed())?;
    let announcer = announce(args, &server, session)?;
    let serving = server.run_until(signals.stop.cancelled());
    tokio::select! {
        biased;
        () = serving => {}
        // This never returns.
        () = broker.run(&address) => {}
    }
    drop(announcer);
    let closing = async {
        if let Some(deliverer) = deliverer {
            deliverer.stop().await;
        }
        broker.close().await;
    };
    close_in_time(session.runtime.as_ref(), closing).await;
    Ok(())
}

/// Validates the URL at which others reach this broker, and returns its host.
fn advertised_host(advertise: Option<&str>, listen: SocketAddr) -> Result<Option<String>, Failure> {
    match advertise {
        Some(url) => match RemoteConfig::parse(url) {
            Ok(config) => match config.servers.as_slice() {
                [server] => Ok(server.host_str().map(str::to_owned)),
                _ => Err(Failure::bad_input(
                    "--advertise takes one URL, that of this process",
                )),
            },
            Err(error) => Err(Failure::bad_input(format!("--advertise: {error}"))),
        },
        None if listen.ip().is_unspecified() => Err(Failure::bad_input(format!(
            "other machines cannot reach this broker at {listen}"
        ))
        .hint("add --advertise with its URL, such as https://queue-1.example.org:7777")),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advertised_url_must_be_reachable_by_others() {
        let listen = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(advertised_host(None, listen("10.0.0.5:7777")).is_ok());
        let host = advertised_host(Some("https://a:1"), listen("0.0.0.0:7777")).unwrap();
        assert_eq!(host.as_deref(), Some("a"));
        let failure = advertised_host(None, listen("[::]:7777")).unwrap_err();
        assert!(failure.hint.unwrap().contains("--advertise"));
        for bad in ["a:1", "http://a,http://b", "ftp://a", "http://u:p@a"] {
            assert!(
                advertised_host(Some(bad), listen("10.0.0.5:7777")).is_err(),
                "{bad}"
            );
        }
    }
}
