//! The built-in handlers, run by a real worker with real processes and requests.

mod exec;
mod exec_stop;
mod http;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use qo::{Queue, Status, Task, TaskHandler, TaskId, TaskType, Worker, WorkerHandle};
use qo_cli::handlers::exec::{CommandLine, ExecHandler, ExecSettings, Groups};
use qo_store::runtime::{Runtime, TokioRuntime};

/// Time limit for events that should happen at once. The machine may be busy.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The type of all tasks.
const TYPE: &str = "job";

fn task_type() -> TaskType {
    TaskType::new(TYPE).unwrap()
}

/// A queue and a worker with one handler.
struct HandlerTest {
    queue: Queue,
    worker: WorkerHandle,
    runtime: Arc<dyn Runtime>,
}

impl HandlerTest {
    async fn new(handler: impl TaskHandler) -> Self {
        let runtime = TokioRuntime::shared();
        let queue = qo::Connect::to("memory:")
            .runtime(Arc::clone(&runtime))
            .open()
            .await
            .unwrap();
        let worker = Worker::builder(queue.clone())
            .handler(handler)
            .lease(Duration::from_secs(3))
            .shutdown_deadline(Duration::from_secs(8))
            .build()
            .unwrap()
            .spawn();
        Self {
            queue,
            worker,
            runtime,
        }
    }

    /// Submits a task without retries.
    async fn submit(&self, input: &serde_json::Value) -> TaskId {
        self.submit_with(input, 0, Duration::from_mins(5)).await
    }

    async fn submit_with(
        &self,
        input: &serde_json::Value,
        retries: u32,
        timeout: Duration,
    ) -> TaskId {
        let task = self.queue.task(TYPE, input).unwrap();
        let submitted = task.retries(retries).timeout(timeout).submit().await;
        submitted.unwrap().task.id
    }

    /// Submits a task and waits until it finishes.
    async fn run(&self, input: &serde_json::Value) -> Task {
        let id = self.submit(input).await;
        self.end(id).await
    }

    async fn end(&self, id: TaskId) -> Task {
        self.queue.wait(id, TIMEOUT).await.unwrap()
    }

    async fn output(&self, task: &Task) -> Option<String> {
        let output = self.queue.output(task).await.unwrap()?;
        Some(output.as_str().to_owned())
    }

    /// Waits until a task satisfies a condition.
    async fn until(&self, id: TaskId, what: &str, condition: impl Fn(&Task) -> bool) -> Task {
        let deadline = self.runtime.monotonic() + TIMEOUT;
        loop {
            let task = self.queue.get(id).await.unwrap();
            if condition(&task) {
                return task;
            }
            assert!(self.runtime.monotonic() < deadline, "{what}: {task:?}");
            self.runtime.sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Waits until a condition holds.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let runtime = TokioRuntime::shared();
    let deadline = runtime.monotonic() + TIMEOUT;
    while !holds() {
        assert!(runtime.monotonic() < deadline, "{what}");
        runtime.sleep(Duration::from_millis(20)).await;
    }
}

/// The error of a failed task.
fn error(task: &Task) -> &str {
    assert_eq!(task.status, Status::Failed, "{task:?}");
    task.last_error.as_deref().unwrap()
}

/// Settings for commands whose environment contains only `PATH`.
fn exec_settings() -> ExecSettings {
    let path = std::env::var("PATH").unwrap();
    ExecSettings {
        output_max_bytes: 64 * 1024,
        kill_grace: Duration::from_secs(2),
        environment: BTreeMap::from([("PATH".to_owned(), path)]),
        groups: Groups::default(),
        runtime: TokioRuntime::shared(),
    }
}

fn shell(line: &str) -> ExecHandler {
    let line = CommandLine::Shell(line.to_owned());
    ExecHandler::new(task_type(), line, exec_settings())
}

/// A command that runs its input as a shell command line.
fn run_input() -> ExecHandler {
    shell("read -r line; eval \"$(printf '%s' \"$line\" | sed -e 's/^\"//' -e 's/\"$//')\"")
}
