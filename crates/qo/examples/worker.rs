//! A producer and a worker in one process: `cargo run --example worker`.

use std::time::Duration;

use qo::{Context, Error, TaskError, TaskInput, Worker};

#[derive(serde::Serialize, serde::Deserialize)]
struct Greet {
    name: String,
}

impl TaskInput for Greet {
    const TYPE: &'static str = "greet";
}

async fn greet(greet: Greet, context: Context) -> Result<String, TaskError> {
    println!("attempt {} of {}", context.attempt(), context.id());
    Ok(format!("Hello, {}!", greet.name))
}

pub(crate) async fn run() -> Result<(), Error> {
    let queue = qo::connect("memory:").await?; // or "s3://bucket", "sqlite:queue.db"
    let worker = Worker::builder(queue.clone()).handle::<Greet>(greet);
    let worker = worker.build()?.spawn(); // a program that does nothing else: .run_until_signal().await
    let name = "Ada".to_owned();
    let submitted = queue.task_of(&Greet { name })?.submit().await?;
    let done = queue
        .wait(submitted.task.id, Duration::from_secs(30))
        .await?;
    println!("{}: {:?}", done.status, queue.output(&done).await?);
    println!("{:?}", worker.stop().await?);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    run().await
}
