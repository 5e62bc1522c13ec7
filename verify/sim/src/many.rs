//! A campaign: many seeds on one engine or on all of them, on all cores.
//!
//! Each core takes the next pair of a seed and an engine. The seed alone decides a run, so the core does not matter. Only the end of a
//! campaign that is limited by time depends on the machine.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use qo_sim::campaign::{Totals, explain, run_seed};
use qo_sim::subject::Subject;

use crate::args::Until;

/// How often a long campaign reports progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);

struct Campaign {
    from: u64,
    until: Until,
    subjects: Vec<Arc<dyn Subject>>,
    started: Instant,
    next: AtomicU64,
    state: Mutex<CampaignState>,
}

struct CampaignState {
    reported: Instant,
    totals: BTreeMap<&'static str, Totals>,
}

/// Runs a campaign, and prints its figures.
#[expect(clippy::disallowed_methods, reason = "a campaign takes real time")]
pub(crate) fn many(
    from: u64,
    until: Until,
    json: bool,
    subjects: Vec<Arc<dyn Subject>>,
) -> ExitCode {
    let started = Instant::now();
    let campaign = Campaign {
        from,
        until,
        subjects,
        started,
        next: AtomicU64::new(0),
        state: Mutex::new(CampaignState {
            reported: started,
            totals: BTreeMap::new(),
        }),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| campaign.work());
        }
    });
    campaign.conclude(json)
}

impl Campaign {
    /// Runs one seed after the other, until there are no more.
    fn work(&self) {
        while let Some((seed, subject)) = self.take() {
            let outcome = run_seed(seed, subject);
            if !outcome.found.0.is_empty() {
                eprintln!("{}", explain(&outcome, subject, None));
            }
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let totals = state.totals.entry(subject.name()).or_default();
            totals.add(&outcome);
            self.report_progress(&mut state, seed);
        }
    }

    fn take(&self) -> Option<(u64, &Arc<dyn Subject>)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let engines = self.subjects.len() as u64;
        let place = usize::try_from(number % engines).unwrap_or_default();
        let count = number / engines;
        let goes_on = match self.until {
            Until::Seeds(seeds) => count < seeds,
            Until::Time(time) => self.started.elapsed() < time,
        };
        goes_on.then(|| (self.from + count, &self.subjects[place]))
    }

    #[expect(clippy::disallowed_methods, reason = "a campaign takes real time")]
    fn report_progress(&self, state: &mut CampaignState, seed: u64) {
        if state.reported.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        state.reported = Instant::now();
        let hours: f64 = state.totals.values().map(simulated_hours).sum();
        let failed: usize = state.totals.values().map(|one| one.failed.len()).sum();
        eprintln!(
            "{:.0?}: seed {seed}, {hours:.1} simulated hours, {failed} failed",
            self.started.elapsed()
        );
    }

    fn conclude(self, json: bool) -> ExitCode {
        let took = self.started.elapsed();
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let failed: Vec<String> = state
            .totals
            .iter()
            .flat_map(|(engine, totals)| {
                let seeds = totals.failed.iter();
                seeds.map(move |seed| format!("{engine} {seed}"))
            })
            .collect();
        if json {
            let engines: serde_json::Map<_, _> = state
                .totals
                .iter()
                .map(|(engine, totals)| ((*engine).to_owned(), totals.figures()))
                .collect();
            let figures = serde_json::json!({
                "took_seconds": took.as_secs_f64(),
                "from_seed": self.from,
                "engines": engines,
                "failures": failed.len(),
            });
            println!("{figures}");
        } else {
            for (engine, totals) in &state.totals {
                println!("{engine}: {totals}");
            }
            println!("took {took:?}");
        }
        if failed.is_empty() {
            eprintln!("no violations");
            return ExitCode::SUCCESS;
        }
        eprintln!(
            "{} seeds failed: {}; add them to verify/sim/seeds.txt",
            failed.len(),
            failed.join(", ")
        );
        ExitCode::FAILURE
    }
}

fn simulated_hours(totals: &Totals) -> f64 {
    totals.lasted.as_secs_f64() / 3_600.0
}
