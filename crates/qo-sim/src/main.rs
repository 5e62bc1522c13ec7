//! scratch
use std::sync::Arc;
fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let (from, to) = (args[0], args[1]);
    let trace = args.get(2).is_some();
    for seed in from..to {
        let plan = qo_sim::plan::Plan::of(seed);
        let started = std::time::Instant::now();
        let outcome = qo_sim::run::run(&plan, Arc::new(qo_sim::subject::Objects), trace);
        for line in &outcome.trace { println!("{line}"); }
        println!("{plan}");
        println!("{:?} struck {} deaths {} recovery {:?} requests {:?} {:?}", started.elapsed(), outcome.struck.len(), outcome.deaths, outcome.recovery, outcome.requests, outcome.tally);
        if !outcome.found.0.is_empty() { println!("FAIL {seed}\n{}", outcome.found); }
    }
}
