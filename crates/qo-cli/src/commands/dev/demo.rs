//! The two demonstration task types: one that always succeeds, and one that now and then does not.

use std::sync::Arc;
use std::time::Duration;

use qo::{Context, Error, Queue, RetryPolicy, SubmitRequest, TaskError, TaskInput};
use qo_store::runtime::{Runtime, RuntimeExt};
use serde::{Deserialize, Serialize};

/// What all sample tasks are tagged with.
pub(super) const TAG: &str = "demo";

const NAMES: [&str; 8] = [
    "Ada", "Alan", "Barbara", "Edsger", "Grace", "Leslie", "Margaret", "Niklaus",
];

/// How often an attempt of [`Flaky`] fails.
const FLAKY_ODDS: f64 = 0.4;

/// The input of `demo.greet`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Greet {
    /// Who is greeted.
    #[serde(default = "nobody_in_particular")]
    name: String,
}

fn nobody_in_particular() -> String {
    "world".to_owned()
}

impl TaskInput for Greet {
    const TYPE: &'static str = "demo.greet";
}

/// The input of `demo.flaky`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Flaky {
    /// How often an attempt fails, from 0 to 1.
    #[serde(default = "flaky_odds")]
    odds: f64,
}

fn flaky_odds() -> f64 {
    FLAKY_ODDS
}

impl TaskInput for Flaky {
    const TYPE: &'static str = "demo.flaky";
}

/// What `demo.greet` gives.
#[derive(Debug, Serialize)]
pub(super) struct Greeting {
    greeting: String,
}

/// What the handlers share.
#[derive(Debug)]
pub(super) struct Surroundings(pub(super) Arc<dyn Runtime>);

fn runtime(context: &Context) -> Result<Arc<dyn Runtime>, TaskError> {
    let surroundings = context
        .state::<Surroundings>()
        .ok_or_else(|| TaskError::permanent("the worker was built without its surroundings"))?;
    Ok(Arc::clone(&surroundings.0))
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

/// `demo.greet`.
pub(super) async fn greet(input: Greet, context: Context) -> Result<Greeting, TaskError> {
    let runtime = runtime(&context)?;
    work(&runtime, &context).await?;
    Ok(Greeting {
        greeting: format!("Hello, {}!", input.name),
    })
}

/// `demo.flaky`.
pub(super) async fn flaky(input: Flaky, context: Context) -> Result<&'static str, TaskError> {
    let runtime = runtime(&context)?;
    work(&runtime, &context).await?;
    if runtime.random_unit() < input.odds {
        return Err(TaskError::retryable(
            "no luck this time (this type is meant to fail)",
        ));
    }
    Ok("lucky")
}

/// A sample task: two of three greet.
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
