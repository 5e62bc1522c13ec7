//! Repeats a program with each fault at each of its requests.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use qo_fixtures::in_paused_time;
use qo_store::runtime::Runtime;
use qo_store::wrap::{Delay, FaultKind, FaultPlan, FaultRule, FaultStore};

use super::bucket::Bucket;
use super::checker::{self, Tolerance};
use super::scenario::Scenario;
use super::stage::Stage;
use super::upkeep;

/// The fault of one request.
#[derive(Debug, Clone, Copy)]
enum Strike {
    /// The process dies before the request is applied.
    CrashBefore,
    /// The process dies after the request was applied, before its reply.
    CrashAfter,
    /// This fault strikes the request or its reply. The process lives on.
    Fault(FaultKind),
    /// The request gets no reply and is applied up to this many seconds later.
    Late(u64),
    /// The caller cancels while the request is in flight. The process lives on.
    DropBefore,
    /// The caller cancels while the reply is in flight. The process lives on.
    DropAfter,
    /// From this request on the store is unavailable, for longer than any retry.
    Outage,
    /// From this request on everything is applied and nothing gets a reply, for longer than any retry.
    Silence,
    /// The request arrives twice and gets the response to the second copy, which its client trusts. Then the store is unavailable, for
    /// longer than any retry, so that nothing can be read back.
    TwiceThenOutage,
}

const STRIKES: [Strike; 18] = [
    Strike::CrashBefore,
    Strike::CrashAfter,
    Strike::Fault(FaultKind::LostRequest),
    Strike::Fault(FaultKind::LostResponse),
    Strike::Fault(FaultKind::DuplicateApply),
    Strike::Fault(FaultKind::Conflict),
    Strike::Fault(FaultKind::ErrorAfterApply),
    Strike::Fault(FaultKind::Unavailable),
    Strike::Fault(FaultKind::StaleList),
    Strike::Fault(FaultKind::TornRead),
    Strike::Late(1),
    Strike::Late(10),
    Strike::Late(90),
    Strike::DropBefore,
    Strike::DropAfter,
    Strike::Outage,
    Strike::Silence,
    Strike::TwiceThenOutage,
];

/// More requests than an operation makes at most.
const SILENT_REQUESTS: u64 = 60;
/// The round-trip time where a caller cancels. The request is applied in the middle.
const ROUND_TRIP: Duration = Duration::from_millis(10);

impl Strike {
    fn plan(self, request: u64) -> FaultPlan {
        // The rule never strikes. It makes the store keep what stale lists need.
        let mut plan = FaultPlan::none().with(FaultRule::new(FaultKind::StaleList, 0.0));
        plan.stale_by = Duration::from_secs(5);
        match self {
            Self::CrashBefore => plan.at(request, FaultKind::Crash),
            Self::CrashAfter => plan
                .at(request, FaultKind::LostResponse)
                .at(request + 1, FaultKind::Crash),
            Self::Fault(kind) => plan.at(request, kind),
            Self::Late(seconds) => {
                plan.late_apply_max = Duration::from_secs(seconds);
                plan.at(request, FaultKind::LateApply)
            }
            Self::DropBefore | Self::DropAfter => plan,
            Self::Outage => {
                plan.burst = Duration::from_mins(1);
                plan.at(request, FaultKind::Unavailable)
            }
            Self::TwiceThenOutage => {
                plan.burst = Duration::from_mins(1);
                plan.at(request, FaultKind::DuplicateApply)
                    .at(request + 1, FaultKind::Unavailable)
            }
            Self::Silence => (request..request + SILENT_REQUESTS).fold(plan, |plan, request| {
                plan.at(request, FaultKind::LostResponse)
            }),
        }
    }

    fn kills(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter)
    }

    /// Whether calls may fail.
    fn defeats(self) -> bool {
        matches!(self, Self::Outage | Self::Silence | Self::TwiceThenOutage)
    }

    /// How long after a request its caller cancels, if it does.
    fn cancelled_after(self) -> Option<Duration> {
        match self {
            Self::DropBefore => Some(Duration::from_millis(2)),
            Self::DropAfter => Some(ROUND_TRIP * 3 / 4),
            _ => None,
        }
    }
}

/// Runs a program without faults, and then again for each of its requests and each fault.
///
/// With `QO_STRIKE` set to a number, only that request fails.
pub(super) fn strike_everywhere(scenario: Scenario) {
    let (requests, _) = play(scenario, None).unwrap_or_else(|wrong| panic!("{wrong}"));
    let only: Option<u64> = std::env::var("QO_STRIKE")
        .ok()
        .and_then(|text| text.parse().ok());
    let mut failures = Vec::new();
    let mut struck = 0;
    for request in (1..=requests).filter(|request| only.is_none_or(|only| only == *request)) {
        for strike in STRIKES {
            match play(scenario, Some((request, strike))) {
                Ok((_, hit)) => struck += u32::from(hit),
                Err(wrong) => failures.push(wrong),
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {struck} strikes on the {requests} requests of {scenario:?} broke a promise:\n{}",
        failures.len(),
        failures.join("\n")
    );
    println!("{scenario:?}: {requests} requests, {struck} strikes");
}

/// Runs a program once, in paused time, and checks the result. Returns the number of its requests, and whether the fault struck.
fn play(scenario: Scenario, strike: Option<(u64, Strike)>) -> Result<(u64, bool), String> {
    in_paused_time(async {
        let plan = strike.map_or_else(FaultPlan::none, |(request, strike)| strike.plan(request));
        let bucket = if scenario.keeps_versions() {
            Bucket::versioned()
        } else {
            Bucket::shared()
        };
        let dropped =
            strike.and_then(|(request, strike)| Some((request, strike.cancelled_after()?)));
        let delay = dropped.map(|_| Delay::Fixed(ROUND_TRIP));
        let trusts_refusals = matches!(strike, Some((_, Strike::TwiceThenOutage)));
        let stage = Stage::new(bucket, plan, delay, trusts_refusals);
        let program = until_crashed(&stage.actor.faults, scenario.play(&stage));
        let ended = match dropped {
            None => program.await,
            Some((request, cancelled_after)) => {
                Box::pin(until_cancelled(&stage, request, cancelled_after, program)).await
            }
        };
        let requests = stage.actor.faults.requests();
        let log = stage.actor.faults.log();
        let struck = if dropped.is_some() {
            ended.is_none()
        } else {
            !log.is_empty()
        };
        let describe = |wrong: String| {
            let at = log.first().map_or_else(String::new, |fault| {
                format!(" ({} {})", fault.operation, fault.key)
            });
            match strike {
                None => format!("{scenario:?} without faults: {wrong}"),
                Some((request, strike)) => {
                    format!("{scenario:?}, {strike:?} at request {request}{at}: {wrong}")
                }
            }
        };
        let kills = strike.is_some_and(|(_, strike)| strike.kills());
        let defeats = strike.is_some_and(|(_, strike)| strike.defeats());
        if kills {
            stage.actor.kill();
        } else if defeats {
            stage.actor.faults.set_plan(FaultPlan::none());
        } else if let Some(Err(unexpected)) = ended {
            return Err(describe(unexpected.0));
        }
        if strike.is_some() && !struck {
            // The fault cannot strike this kind of request.
            return Ok((requests, false));
        }
        // A process that lives on must work as well as a new one.
        let lives_on = dropped.is_some() || defeats;
        let drained = if lives_on {
            upkeep::drain_with(&stage.actor, &stage.bucket).await
        } else {
            upkeep::drain(&stage.bucket, &stage.log).await
        };
        drained.map_err(describe)?;
        if stage.bucket.keeps_versions() {
            let repeated = upkeep::repeat_purges(&stage.bucket, &stage.log).await;
            repeated.map_err(describe)?;
        }
        let tolerance = if kills || lives_on {
            Tolerance::Deaths
        } else {
            Tolerance::None
        };
        let reader = stage.other("reader", 4);
        let breaches = checker::check(&stage.bucket, &stage.log, &reader.engine, tolerance).await;
        if breaches.is_empty() {
            Ok((requests, struck))
        } else {
            Err(describe(breaches.to_string()))
        }
    })
}

/// Runs a program until it ends, or until a while after a request.
async fn until_cancelled<T>(
    stage: &Stage,
    request: u64,
    delay: Duration,
    program: impl Future<Output = Option<T>>,
) -> Option<T> {
    let mut program = pin!(program);
    let ended = poll_fn(|context| match program.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready(ended),
        Poll::Pending if stage.is_armed() && stage.actor.faults.requests() >= request => {
            Poll::Ready(None)
        }
        Poll::Pending => Poll::Pending,
    })
    .await;
    if ended.is_some() {
        return ended;
    }
    tokio::select! {
        biased;
        ended = program => ended,
        () = stage.actor.runtime.sleep(delay) => None,
    }
}

/// Runs a part of a process until it ends, or the process crashes.
pub(super) async fn until_crashed<T>(
    faults: &FaultStore,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if faults.is_crashed() {
            return Poll::Ready(None);
        }
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if faults.is_crashed() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
