//! `qo dev`: a queue, a worker, sample tasks and a live view in one process, without any setup.
//!
//! Three things run concurrently: the worker, the stream of sample tasks, and the view. The view shows ended attempts at once and task
//! counts when they arrive, so a slow store never blocks it.

#[cfg(feature = "cluster")]
mod cluster;
mod dashboard;
mod demo;
mod hints;
mod live_view;
mod samples;

use std::sync::Arc;
use std::time::Duration;

use qo::{Queue, Stats, Worker, WorkerReport};
use qo_core::webhook::delivery::QUEUE;
use qo_engine::api::Duty;
use qo_store::StoreKind;
use qo_store::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use self::cluster::LocalCluster;
use self::dashboard::Dashboard;
use self::hints::Hints;
use self::live_view::{LiveView, Snapshot};
use self::samples::Samples;
use super::activity::{Activity, EndedAttempt};
use super::deliverer;
use super::discover::announce_by_mdns;
use super::worker::{Line, StartedWorker, show_until, store_name, summary};
use crate::args::DevArgs;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output::terminal::{Canvas, Size, size};
use crate::output::{Screen, text, time};
use crate::session::Session;
use crate::signals::{Signals, interrupted};

/// Interval between two drawings of the view.
const DRAW_INTERVAL: Duration = Duration::from_millis(250);

/// Interval between two counts of the tasks, for stores on this machine and for others, where counting costs requests.
const COUNT_INTERVAL_LOCAL: Duration = Duration::from_secs(1);
const COUNT_INTERVAL_REMOTE: Duration = Duration::from_secs(5);

/// After a count that took long, the pause is this many times its duration.
const COUNT_PAUSE_FACTOR: u32 = 10;

/// Idle time after which the command exits, if it is not on a terminal.
const IDLE: Duration = Duration::from_secs(1);

/// The same, if not all samples were run here: another worker may have claimed some.
const IDLE_LONG: Duration = Duration::from_secs(20);

/// How long a stop waits for running tasks, and how long a cancelled task has to stop. The sample tasks are short.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_secs(1);

/// Assumed size of a terminal that does not report one.
const SIZE_DEFAULT: Size = Size {
    columns: 80,
    rows: 24,
};

pub(super) async fn run(args: &DevArgs, session: &mut Session) -> Result<(), Failure> {
    let runtime = Arc::clone(&session.runtime);
    let started = runtime.monotonic();
    let signals = Signals::listen(&runtime)?;
    if session.screen.terminals().stdout {
        session
            .screen
            .note("opening the queue; a new store is probed first ...");
    }
    let local = tokio::select! {
        biased;
        () = signals.stop.cancelled() => return Err(interrupted()),
        local = start_cluster(args, session) => local?,
    };
    let queue = tokio::select! {
        biased;
        () = signals.stop.cancelled() => return Err(interrupted()),
        queue = session.connect() => queue?,
    };
    let (activity, ended) = Activity::new(Arc::clone(&runtime));
    let mut builder = Worker::builder(queue.clone());
    if queue.engine().duty() != Duty::None {
        // The queue may be on this machine only, and so may be what it notifies.
        let handler = deliverer::handler(&queue, true, &runtime)?;
        let queues = [qo::QueueName::default().to_string(), QUEUE.to_owned()];
        builder = builder.queues(queues).handler(handler);
    }
    let worker = builder
        .concurrency(args.concurrency)
        .shutdown_deadline(SHUTDOWN_TIMEOUT)
        .grace(GRACE)
        .state(demo::DemoState(Arc::clone(&runtime)))
        .handle::<demo::Greet>(demo::greet)
        .handle::<demo::Flaky>(demo::flaky)
        .hook(activity.clone())
        .build()?;
    let dashboard = if args.no_dashboard || local.is_some() {
        None
    } else {
        Some(Dashboard::serve(&queue, args.listen).await?)
    };
    let announcer = match &dashboard {
        Some(dashboard) if !args.no_mdns => announce_by_mdns(dashboard.address, false)
            .inspect_err(|error| tracing::debug!(%error, "cannot announce the server"))
            .ok(),
        _ => None,
    };
    let dashboard_url = match &local {
        Some(local) => local.dashboard(),
        None => dashboard.as_ref().map(|dashboard| dashboard.url.clone()),
    };
    let samples = Samples::new(args.tasks_per_second, args.duration, runtime.as_ref());
    let mut dev = Dev {
        hints: hints(session, &queue).with_dashboard(dashboard_url.clone()),
        store: store_name(&queue),
        worker: worker.id().to_string(),
        slots: args.concurrency,
        queue,
        runtime,
        started,
        signals,
        activity,
        ended,
        samples,
    };
    let submitting = dev.samples.clone();
    let queue = dev.queue.clone();
    let runtime = Arc::clone(&dev.runtime);
    let stop = dev.signals.stop.clone();
    runtime.spawn(Box::pin(async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = submitting.submit(&queue) => {}
        }
    }));
    let report = if session.screen.terminals().stdout && !session.screen.json {
        dev.on_terminal(worker, &mut session.screen).await?
    } else {
        if let Some(url) = &dashboard_url {
            session.screen.note(format_args!("dashboard: {url}"));
        }
        dev.in_lines(worker, &mut session.screen).await?
    };
    drop(announcer);
    if let Some(dashboard) = dashboard {
        dashboard.stop().await;
    }
    dev.print_summary(&report, local.is_none(), &mut session.screen)?;
    if let Some(local) = local {
        session.close().await;
        local.stop().await;
    }
    Ok(())
}

#[cfg(not(feature = "cluster"))]
mod cluster {
    //! Without cluster mode there is none to start.

    pub(super) enum LocalCluster {}

    impl LocalCluster {
        pub(super) fn dashboard(&self) -> Option<String> {
            match *self {}
        }

        pub(super) fn stop(self) -> std::future::Ready<()> {
            match self {}
        }
    }
}

/// Starts the cluster of `--cluster`, and makes it the store of this command.
#[cfg(feature = "cluster")]
async fn start_cluster(
    args: &DevArgs,
    session: &mut Session,
) -> Result<Option<LocalCluster>, Failure> {
    let Some(nodes) = args.cluster else {
        return Ok(None);
    };
    if matches!(session.settings.store.origin, Origin::Flag(_)) {
        return Err(Failure::bad_input(
            "--cluster has no store: its nodes keep the queue; omit --store",
        ));
    }
    let local = LocalCluster::start(nodes.into(), args.listen, &session.runtime).await?;
    session.settings.store.value = Some(local.url());
    session.settings.store.origin = Origin::Flag("--cluster");
    Ok(Some(local))
}

#[cfg(not(feature = "cluster"))]
fn start_cluster(
    args: &DevArgs,
    _session: &mut Session,
) -> std::future::Ready<Result<Option<LocalCluster>, Failure>> {
    std::future::ready(match args.cluster {
        None => Ok(None),
        Some(_) => Err(super::serve::without_cluster_mode()),
    })
}

/// How to call other commands on the same queue.
fn hints(session: &Session, queue: &Queue) -> Hints {
    let program = std::env::args_os()
        .next()
        .and_then(|program| program.into_string().ok())
        .unwrap_or_else(|| "qo".to_owned());
    let settings = &session.settings.store;
    let store = match settings.origin {
        Origin::Flag(_) => settings.value.as_deref(),
        _ => None,
    };
    let is_shared = queue
        .store()
        .is_none_or(|store| store.kind != StoreKind::Memory);
    Hints::new(&program, store, is_shared)
}

/// A running `qo dev`.
struct Dev {
    queue: Queue,
    runtime: Arc<dyn Runtime>,
    started: Duration,
    store: String,
    worker: String,
    slots: usize,
    hints: Hints,
    signals: Signals,
    activity: Activity,
    ended: mpsc::Receiver<EndedAttempt>,
    samples: Samples,
}

impl Dev {
    /// Draws the view until a stop signal arrives.
    async fn on_terminal(
        &mut self,
        worker: Worker,
        screen: &mut Screen,
    ) -> Result<WorkerReport, Failure> {
        let mut view = LiveView::new(
            self.store.clone(),
            self.worker.clone(),
            self.slots,
            self.hints.clone(),
        );
        let mut counts = count_periodically(&self.queue);
        let stop = self.signals.stop.clone();
        let work = worker.run_until(async move { stop.cancelled().await });
        tokio::pin!(work);
        let mut canvas = Canvas::open()?;
        loop {
            while let Ok(ended) = self.ended.try_recv() {
                view.add(ended);
            }
            view.stats.clone_from(&counts.borrow_and_update());
            let size = size().unwrap_or(SIZE_DEFAULT);
            canvas.draw(&view.render(self.snapshot(), screen.paint, size))?;
            let next_draw = self.runtime.sleep(DRAW_INTERVAL);
            tokio::select! {
                biased;
                // Without a stop signal, the worker ends only on an error.
                report = &mut work => return Ok(report?),
                () = self.signals.stop.cancelled() => break,
                Some(ended) = self.ended.recv() => view.add(ended),
                () = next_draw => {}
            }
        }
        drop(canvas);
        let running = self.activity.running();
        if running > 0 {
            screen.note(format_args!(
                "stopping: waiting for {}; press Ctrl-C to stop at once",
                text::count(running as u64, "task")
            ));
        }
        tokio::select! {
            biased;
            () = self.signals.stop_at_once.cancelled() => Err(interrupted()),
            report = &mut work => Ok(report?),
        }
    }

    /// Prints a line for each attempt, until the sample tasks are finished or a stop signal arrives.
    async fn in_lines(
        &mut self,
        worker: Worker,
        screen: &mut Screen,
    ) -> Result<WorkerReport, Failure> {
        let id = worker.id().clone();
        let types = [demo_type::<demo::Greet>()?, demo_type::<demo::Flaky>()?];
        let line = Line::Started(StartedWorker {
            worker: &id,
            store: &self.store,
            types: types.iter().collect(),
            queues: &[qo::QueueName::default()],
            slots: self.slots,
        });
        line.print(screen, self.runtime.now());
        let finished = finished(
            self.signals.clone(),
            self.activity.clone(),
            self.samples.clone(),
            Arc::clone(&self.runtime),
        );
        let work = worker.run_until(finished);
        let at_once = self.signals.stop_at_once.clone();
        let end = async {
            tokio::select! {
                biased;
                () = at_once.cancelled() => Err(interrupted()),
                report = work => Ok(report?),
            }
        };
        let report = show_until(end, &mut self.ended, screen).await?;
        let line = Line::Stopped {
            worker: &id,
            report: &report,
        };
        line.print(screen, self.runtime.now());
        Ok(report)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            now: self.runtime.now(),
            elapsed: self.runtime.monotonic().saturating_sub(self.started),
            running: self.activity.running(),
            submitted: self.samples.submitted(),
            per_second: self.samples.per_second(),
            samples_left: self.samples.left(self.runtime.as_ref()),
        }
    }

    /// Prints a summary and what to do next.
    fn print_summary(
        &self,
        report: &WorkerReport,
        is_kept: bool,
        screen: &mut Screen,
    ) -> Result<(), Failure> {
        if screen.json {
            return Ok(());
        }
        let elapsed = self.runtime.monotonic().saturating_sub(self.started);
        screen.line(format_args!(
            "qo dev ran for {}: {} submitted, {} ended ({})",
            time::duration(elapsed),
            text::count(self.samples.submitted(), "sample task"),
            text::count(report.attempts(), "attempt"),
            summary(report),
        ))?;
        if !is_kept {
            screen.line("The cluster was in this process, and is gone.")?;
            return Ok(());
        }
        screen.line(format_args!("The queue is in {}.", self.store))?;
        for (words, what) in [
            ("list --limit 10", "lists its tasks"),
            ("dev", "continues with the same queue"),
            ("purge --tag demo --yes", "deletes finished sample tasks"),
        ] {
            let command = self.hints.command(words);
            screen.line(format_args!("{command:<40}  {what}"))?;
        }
        Ok(())
    }
}

/// The task type of a demo task.
fn demo_type<T: qo::TaskInput>() -> Result<qo::TaskType, Failure> {
    Ok(qo::TaskType::new(T::TYPE).map_err(qo::Error::from)?)
}

/// Waits until the sample tasks are finished or a stop signal arrives.
async fn finished(
    signals: Signals,
    activity: Activity,
    samples: Samples,
    runtime: Arc<dyn Runtime>,
) {
    loop {
        let idle = activity.idle().unwrap_or_default();
        let are_done = activity.finished() >= samples.submitted() && idle >= IDLE;
        if samples.left(runtime.as_ref()).is_none() && (are_done || idle >= IDLE_LONG) {
            return;
        }
        tokio::select! {
            biased;
            () = signals.stop.cancelled() => return,
            () = runtime.sleep(DRAW_INTERVAL) => {}
        }
    }
}

/// Counts the tasks periodically in the background. The receiver holds the newest counts.
fn count_periodically(queue: &Queue) -> watch::Receiver<Option<Stats>> {
    let interval = match queue.store().map(|store| store.kind) {
        Some(StoreKind::Memory | StoreKind::Sqlite) => COUNT_INTERVAL_LOCAL,
        _ => COUNT_INTERVAL_REMOTE,
    };
    let (counted, counts) = watch::channel(None);
    let queue = queue.clone();
    let runtime = Arc::clone(queue.runtime());
    let spawner = Arc::clone(&runtime);
    spawner.spawn(Box::pin(async move {
        while !counted.is_closed() {
            let started = runtime.monotonic();
            match queue.stats().await {
                Ok(stats) => {
                    counted.send_replace(Some(stats));
                }
                Err(error) => tracing::warn!(%error, "cannot count the tasks"),
            }
            let took = runtime.monotonic().saturating_sub(started);
            runtime.sleep(interval.max(took * COUNT_PAUSE_FACTOR)).await;
        }
    }));
    counts
}
