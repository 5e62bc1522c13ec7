//! A broker without requests.

use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use qo_engine::Engine;
use qo_store::wrap::{Operation, Prices};

use crate::rig::{BenchRig, request};
use qo_fixtures::Report;

const SECONDS: u64 = 180;

pub(crate) async fn run(report: &mut Report) {
    let rig = BenchRig::new(Arc::new(InMemory::new()), None);
    let engine = rig.slate().await;
    engine.submit(request(1_024)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = rig.counting.counts();
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let counts = rig.counting.counts().since(&before);
    let month = 30.0 * 24.0 * 3_600.0 / SECONDS as f64;
    for (name, operations) in [
        ("GET a second", &[Operation::Get, Operation::Head][..]),
        ("LIST a second", &[Operation::List]),
        (
            "PUT a second",
            &[Operation::Put, Operation::Create, Operation::Swap],
        ),
    ] {
        let requests: u64 = operations
            .iter()
            .map(|operation| counts.total(*operation).requests)
            .sum();
        report.figure("idle", name, requests as f64 / SECONDS as f64, "");
    }
    let dollars = counts.dollars(&Prices::default()) * month;
    report.figure("idle", "dollars a month", dollars, "under 5");
    engine.close().await;
}
