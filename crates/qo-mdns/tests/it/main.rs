//! Tests of announcements as other programs see them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use mdns_sd::{ServiceDaemon, ServiceEvent};
use qo_mdns::{Announcement, Announcer, QUEUEY_SERVICE};

/// A client of queuey-queue browses its own service, and reads the port from the property that queuey-queue documents.
#[test]
fn clients_of_queuey_queue_find_the_server() {
    let port = 45_771;
    let announcer = Announcer::start(&Announcement {
        address: ([127, 0, 0, 1], port).into(),
        tls: false,
        version: "1.2.3".to_owned(),
    })
    .unwrap();
    let client = ServiceDaemon::new().unwrap();
    let answers = client.browse(QUEUEY_SERVICE).unwrap();
    let expected = format!("{}.{QUEUEY_SERVICE}", announcer.name());
    // Questions are repeated after 1, 3, 7 and more seconds. Other programs of this machine may announce servers, too.
    let mut events = std::iter::from_fn(|| answers.recv_timeout(Duration::from_mins(1)).ok());
    let found = events.find_map(|event| match event {
        ServiceEvent::ServiceResolved(service) if service.get_fullname() == expected => {
            Some(service)
        }
        _ => None,
    });
    let found = found.unwrap();
    assert_eq!(found.get_property_val_str("http_port"), Some("45771"));
    assert_eq!(found.get_property_val_str("version"), Some("1.2.3"));
    assert_eq!(found.get_property_val_str("path"), Some("/"));
    assert_eq!(found.get_port(), port);
    client.shutdown().unwrap();
}
