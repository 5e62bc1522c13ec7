//! The two demo task types: one always succeeds, the other fails at times.

use std::sync::Arc;
use std::time::Duration;

use qo::{Context, Error, Queue, RetryPolicy, SubmitRequest, TaskError, TaskInput};
use qo_store::runtime::{Runtime, RuntimeExt};
use serde::{Deserialize, Serialize};

/// The tag of all sample tasks.
pub(super) const TAG: &str = "demo";

const NAMES: [&str; 8] = [
    "Ada", "Alan", "Barbara", "Edsger", "Grace", "Leslie", "Margaret", "Niklaus",
];

/// Probability that an attempt of [`Flaky`] fails.
const FLAKY_ODDS: f64 = 0.4;

/// The input of `demo.greet`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Greet {
    /// The name to greet.
    #[serde(default = "default_name")]
    name: String,
}

fn default_name() -> String {
    "world".to_owned()
}

impl TaskInput for Greet {
    const TYPE: &'static str = "demo.greet";
}

/// The input of `demo.flaky`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Flaky {
    /// Probability that an attempt fails.
    #[serde(default = "flaky_odds")]
    odds: f64,
}

fn flaky_odds() -> f64 {
    FLAKY_ODDS
}

impl TaskInput for Flaky {
    const TYPE: &'static str = "demo.flaky";
}

/// The output of `demo.greet`.
#[derive(Debug, Serialize)]
pub(super) struct Greeting {
    greeting: String,
}

/// State shared by the handlers.
#[derive(Debug)]
pub(super) struct DemoState(pub(super) Arc<dyn Runtime>);

fn runtime(context: &Context) -> Result<Arc<dyn Runtime>, TaskError> {
    let state = context
        .state::<DemoState>()
        .ok_or_else(|| TaskError::permanent("the worker has no demo state"))?;
    Ok(Arc::clone(&state.0))
}

/// Takes about as long as a small real task.
async fn work(runtime: &Arc<dyn Runtime>, context: &Context) -> Result<(), TaskError> {
    let pause = Duration::from_millis(100 + runtime.random_below(500));
    tokio::select! {
        biased;
        () = context.cancellation().cancelled() => Err(TaskError::Cancelled),
        () = runtime.sleep(pause) => Ok(()),
    }
}

/// Handles `demo.greet`.
pub(super) async fn greet(input: Greet, context: Context) -> Result<Greeting, TaskError> {
    let runtime = runtime(&context)?;
    work(&runtime, &context).await?;
    Ok(Greeting {
        greeting: format!("Hello, {}!", input.name),
    })
}

/// Handles `demo.flaky`.
pub(super) async fn flaky(input: Flaky, context: Context) -> Result<&'static str, TaskError> {
    let runtime = runtime(&context)?;
    work(&runtime, &context).await?;
    if runtime.random_unit() < input.odds {
        return Err(TaskError::retryable(
            "no luck this time (demo.flaky fails on purpose)",
        ));
    }
    Ok("lucky")
}

/// A random sample task. Two out of three are greetings.
pub(super) fn sample(queue: &Queue, runtime: &dyn Runtime) -> Result<SubmitRequest, Error> {
    let policy = RetryPolicy {
        initial_interval_ms: 1_000,
        ..RetryPolicy::default()
    };
    let task = if runtime.random_below(3) < 2 {
        let index = usize::try_from(runtime.random_below(NAMES.len() as u64)).unwrap_or(0);
        let name = NAMES.get(index).copied().unwrap_or("world");
        queue.task(
            Greet::TYPE,
            &Greet {
                name: name.to_owned(),
            },
        )?
    } else {
        queue.task(Flaky::TYPE, &Flaky { odds: FLAKY_ODDS })?
    };
    task.tag(TAG)
        .retries(2)
        .retry_policy(policy)
        .timeout(Duration::from_secs(30))
        .build()
}
