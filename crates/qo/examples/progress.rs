//! Reports progress, and cancels a running task: `cargo run --example progress`.

use std::time::Duration;

use qo::{Context, Error, TaskError, TaskInput, Worker};

#[derive(serde::Serialize, serde::Deserialize)]
struct Encode {
    frames: u32,
}

impl TaskInput for Encode {
    const TYPE: &'static str = "encode";
}

async fn encode(encode: Encode, context: Context) -> Result<(), TaskError> {
    for frame in 0..encode.frames {
        let percent = 100.0 * f64::from(frame) / f64::from(encode.frames);
        // Cheap: at most one report a second is written.
        context.progress(percent, format!("frame {frame}")).await?;
        let work = context.queue().runtime().sleep(Duration::from_millis(50));
        tokio::select! {
            () = work => {}
            () = context.cancellation().cancelled() => {
                println!("handler: stopped at frame {frame}: {:?}", context.stop_reason());
                return Err(TaskError::Cancelled);
            }
        }
    }
    Ok(())
}

pub(crate) async fn run() -> Result<(), Error> {
    let queue = qo::connect("memory:").await?;
    let worker = Worker::builder(queue.clone())
        .handle::<Encode>(encode)
        .build()?
        .spawn();
    let task = queue.task_of(&Encode { frames: 1_000 })?;
    let id = task.submit().await?.task.id;
    loop {
        queue.runtime().sleep(Duration::from_millis(300)).await;
        let task = queue.get(id).await?;
        let Some(progress) = &task.progress else {
            continue;
        };
        let message = progress.message.as_deref().unwrap_or_default();
        println!("{}: {:.1} %, {message}", task.status, progress.percent);
        if progress.percent >= 2.0 {
            break;
        }
    }
    // The worker notices it at its next write: a renewal after a third of the lease, or a progress report.
    println!("cancelling");
    queue.cancel(id, Some("changed my mind")).await?;
    let ended = queue.wait(id, Duration::from_secs(30)).await?;
    let error = ended.last_error.as_deref().unwrap_or_default();
    println!("{}: {error}", ended.status);
    println!("{:?}", worker.stop().await?);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    run().await
}
