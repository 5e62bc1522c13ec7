//! Retries, dead letters, and replaying one: `cargo run --example retries`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qo::{
    Context, Error, Queue, RetryPolicy, Status, TaskError, TaskFilter, TaskId, TaskInput, Worker,
};

#[derive(serde::Serialize, serde::Deserialize)]
struct Charge {
    card: String,
}

impl TaskInput for Charge {
    const TYPE: &'static str = "charge";
}

/// A bank that can be closed.
#[derive(Default)]
struct Bank {
    is_open: AtomicBool,
}

async fn charge(charge: Charge, context: Context) -> Result<String, TaskError> {
    let bank = context.state::<Arc<Bank>>().ok_or("no bank")?;
    if charge.card.is_empty() {
        // A retry would not help.
        return Err(TaskError::permanent("no card"));
    }
    if !bank.is_open.load(Ordering::SeqCst) {
        // Any error is retried; `?` has the same effect.
        return Err(TaskError::retryable("the bank is closed"));
    }
    // A real bank would receive the id, to recognise a repeated charge, and the attempt, to refuse an old attempt.
    Ok(format!("charged {} for {}", charge.card, context.id()))
}

pub(crate) async fn run() -> Result<(), Error> {
    let queue = qo::connect("memory:").await?;
    let bank = Arc::new(Bank::default());
    let worker = Worker::builder(queue.clone())
        .handle::<Charge>(charge)
        .state(Arc::clone(&bank))
        .build()?
        .spawn();
    let policy = RetryPolicy {
        initial_interval_ms: 100,
        ..RetryPolicy::default()
    };
    let mut ids = Vec::new();
    for card in ["4242", ""] {
        let card = card.to_owned();
        let task = queue.task_of(&Charge { card })?;
        let task = task.retries(2).retry_policy(policy.clone());
        ids.push(task.submit().await?.task.id);
    }
    for id in &ids {
        show(&queue, *id).await?;
    }

    // Failed tasks are kept, and can be inspected and replayed.
    let failed = TaskFilter {
        statuses: vec![Status::Failed],
        ..TaskFilter::default()
    };
    let dead = queue.count(&failed).await?;
    println!("{dead} dead letters; the bank opens");
    bank.is_open.store(true, Ordering::SeqCst);
    queue.replay(ids[0]).await?;
    show(&queue, ids[0]).await?;
    println!("{:?}", worker.stop().await?);
    Ok(())
}

/// Waits for a task to finish, and prints its events.
async fn show(queue: &Queue, id: TaskId) -> Result<(), Error> {
    let task = queue.wait(id, Duration::from_secs(30)).await?;
    println!("{id} {} after {} attempts", task.status, task.attempt);
    for event in queue.history(id).await? {
        let error = event.error.as_deref().unwrap_or_default();
        println!("  {} {:<9} {error}", event.at, event.to.as_str());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    run().await
}
