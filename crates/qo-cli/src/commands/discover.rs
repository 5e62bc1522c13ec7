//! `qo discover`, and announcing servers.

use std::net::SocketAddr;

use qo_mdns::{Announcement, Announcer, MdnsError, Server};
use serde::Serialize;

use crate::args::DiscoverArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::style::{BOLD, DIM};
use crate::output::table::{Cell, Table};
use crate::session::Session;

pub(super) async fn run(args: &DiscoverArgs, session: &mut Session) -> Result<(), Failure> {
    let servers = qo_mdns::discover(session.runtime.as_ref(), args.timeout, None).await?;
    let screen = &mut session.screen;
    if screen.json {
        for server in &servers {
            screen.json(&ServerView::new(server))?;
        }
        return Ok(());
    }
    if servers.is_empty() {
        screen.note(
            "No server responded. Servers announce themselves if they are started with `qo serve --mdns`; --timeout waits longer.",
        );
        return Ok(());
    }
    let mut table = Table::new().column("NAME").column("URL").column("VERSION");
    for server in &servers {
        table.row(vec![
            Cell::styled(&server.name, BOLD),
            Cell::new(server.url()),
            Cell::styled(server.version.as_deref().unwrap_or("-"), DIM),
        ]);
    }
    Ok(screen.table(&table)?)
}

/// A server as `--json` prints it.
#[derive(Debug, Serialize)]
struct ServerView<'a> {
    name: &'a str,
    url: String,
    addresses: Vec<String>,
    port: u16,
    path: &'a str,
    version: Option<&'a str>,
}

impl<'a> ServerView<'a> {
    fn new(server: &'a Server) -> Self {
        Self {
            name: &server.name,
            url: server.url(),
            addresses: server.addresses.iter().map(ToString::to_string).collect(),
            port: server.port,
            path: &server.path,
            version: server.version.as_deref(),
        }
    }
}

/// Announces a server of this process until the result is dropped.
pub(super) fn announce_by_mdns(address: SocketAddr, tls: bool) -> Result<Announcer, MdnsError> {
    Announcer::start(&Announcement {
        address,
        tls,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

impl From<MdnsError> for Failure {
    fn from(error: MdnsError) -> Self {
        Self::new(FailureKind::Unavailable, error.to_string())
            .hint("a firewall, a container or a missing network interface may prevent it; use the server's URL instead")
    }
}
