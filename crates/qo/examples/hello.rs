//! A producer and a worker, in one process, on the store that needs no set-up: an SQLite file in the user's data directory.
//!
//! `cargo run --release --example hello`, or with a store's URL: `cargo run --release --example hello -- s3://bucket`.

use std::process::ExitCode;
use std::time::Duration;

use qo::{ClaimRequest, Error, Failure, FailureKind, Json, Queue, Task, WorkerInfo};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hello: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Error> {
    let queue = match std::env::args().nth(1) {
        Some(url) => qo::connect(&url).await?,
        None => qo::connect_default().await?,
    };
    if let Some(store) = queue.store() {
        println!("store: {}", store.description);
    }

    // A producer describes work. The third task fails once before it succeeds, and is retried after a second.
    let mut submitted = Vec::new();
    for name in ["Ada", "Grace", "Unlucky"] {
        let task = queue.task("greet", &name)?.tag("hello").submit().await?;
        println!("submitted {} for {name}", task.task.id);
        submitted.push(task.task.id);
    }

    // A worker claims it, does it, and says what came of it.
    let worker: qo::WorkerId = "hello-worker".parse()?;
    queue
        .heartbeat(&WorkerInfo::new(worker.clone(), queue.now()))
        .await?;
    let mut wish = ClaimRequest::new(worker.clone(), vec!["greet".parse()?]);
    wish.wait_ms = 5_000;
    let mut left = submitted.len();
    while left > 0 {
        for task in queue.claim(&wish).await? {
            let done = greet(&queue, &task).await?;
            left -= usize::from(done && submitted.contains(&task.id));
        }
    }
    queue.deregister(&worker).await?;

    // Everybody can see what happened.
    for id in submitted {
        let task = queue.wait(id, Duration::from_secs(5)).await?;
        let output = queue.output(&task).await?;
        println!(
            "\n{id} {} after {} attempt(s): {}",
            task.status,
            task.attempt,
            output.map_or_else(|| "no output".to_owned(), |json| json.to_string())
        );
        for event in queue.history(id).await? {
            let from = event.from.map_or("", qo::Status::as_str);
            let error = event.error.as_deref().unwrap_or_default();
            let line = format!("  {}  {from:<9} -> {:<9}  {error}", event.at, event.to);
            println!("{}", line.trim_end());
        }
    }
    queue.close().await;
    Ok(())
}

/// Does one task. Says whether it has come to its end.
async fn greet(queue: &Queue, task: &Task) -> Result<bool, Error> {
    let Some(lease) = task.lease_id else {
        return Ok(false);
    };
    let name: Json = queue.input(task).await?;
    if name.as_str().contains("Unlucky") && task.attempt == 1 {
        let failure = Failure {
            kind: FailureKind::Retryable,
            error: "the line was busy".into(),
        };
        queue.fail(task.id, lease, failure).await?;
        return Ok(false);
    }
    let greeting = format!("Hello, {}!", name.as_str().trim_matches('"'));
    let output = Json::from_value(&greeting).ok();
    queue.complete(task.id, lease, output).await?;
    Ok(true)
}
