//! A worker without handlers, on the operations of `Queue`: it completes each task with the task's input.
//!
//! `cargo run --example echo_worker -- s3://bucket` serves all queues and types until it is killed.

use std::process::ExitCode;

use qo::{ClaimRequest, Error, WorkerInfo};

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(run()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo_worker: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Error> {
    let queue = match std::env::args().nth(1) {
        Some(url) => qo::connect(&url).await?,
        None => qo::connect_default().await?,
    };
    let worker: qo::WorkerId = "echo".parse()?;
    let mut info = WorkerInfo::new(worker.clone(), queue.now());
    let mut request = ClaimRequest::new(worker, Vec::new());
    request.queues = Vec::new();
    request.wait_ms = 10_000;
    loop {
        info.last_heartbeat = queue.now();
        queue.heartbeat(&info).await?;
        for task in queue.claim(&request).await? {
            let Some(lease) = task.lease_id else { continue };
            let input = queue.input(&task).await?;
            queue.complete(task.id, lease, Some(input)).await?;
            info.tasks_completed += 1;
            println!("{} {}", task.id, task.task_type);
        }
    }
}
