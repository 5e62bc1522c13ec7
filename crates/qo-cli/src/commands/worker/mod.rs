//! `qo worker`: a worker whose handlers are commands, HTTP requests and WASI programs.

mod lines;
mod settings;
mod stop;
mod wasi;

use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use qo::{IndexMode, Queue, QueueName, TaskHandler, Worker, WorkerReport};
use qo_engine::api::Duty;
use qo_store::runtime::Runtime;
use reqwest::header::HeaderMap;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::settings::{HandlerSpec, WorkerSettings};
use self::stop::ExitLimits;
use super::activity::{Activity, EndedAttempt};
use crate::args::WorkerArgs;
use crate::config;
use crate::environment::Environment;
use crate::failure::{Failure, FailureKind};
use crate::handlers::exec::{ExecHandler, ExecSettings, Groups, Inheritance};
use crate::handlers::http::{Headers, HttpHandler, HttpSettings, Target};
use crate::output::Screen;
use crate::session::Session;
use crate::signals::{Signals, interrupted};

pub(super) use self::lines::{Line, StartedWorker, outcome_word, retry_at, retry_text, summary};

/// How long the worker waits for a cancelled handler beyond the kill grace of its command: time to read the last output.
const HANDLER_GRACE: Duration = Duration::from_secs(3);

/// Interval between progress lines during a stop.
const STOP_REPORT_INTERVAL: Duration = Duration::from_secs(5);

pub(super) async fn run(args: &WorkerArgs, session: &mut Session) -> Result<(), Failure> {
    let file = session.settings.file.as_ref();
    let path = file.map_or(Path::new("qo.toml"), |file| file.path.as_path());
    let settings =
        WorkerSettings::resolve(args, &session.environment, path, &session.settings.worker)?;
    let runs_wasi = |spec: &HandlerSpec| matches!(spec, HandlerSpec::Wasi(_));
    if session.settings.encryption.is_some() && settings.handlers.values().any(runs_wasi) {
        return Err(Failure::bad_input(
            "a worker with encryption keys cannot run WASI jobs: their outputs refer to blobs, which are stored unencrypted",
        )
        .hint("run a second worker without encryption keys for them"));
    }
    let schedules = match file {
        Some(file) => config::schedules(path, &file.schedules)?,
        None => Vec::new(),
    };
    let groups = Groups::default();
    let mut handlers = handlers(&settings, &session.environment, &groups, &session.runtime)?;
    if let Some(mode) = settings.index_mode {
        let variables = &mut session.environment.variables;
        variables.insert("QO_INDEX_MODE".to_owned(), mode_name(mode).to_owned());
    }

    let signals = Signals::listen(&session.runtime)?;
    let queue = tokio::select! {
        biased;
        () = signals.stop.cancelled() => return Err(interrupted()),
        queue = session.connect() => queue?,
    };
    for (name, spec) in schedules {
        queue.schedules().put(&name, spec).await?;
    }
    if settings
        .handlers
        .values()
        .any(|spec| *spec == HandlerSpec::Webhooks)
    {
        handlers.push(deliveries(&queue, &settings, &session.runtime)?);
    }
    let (activity, ended) = Activity::new(Arc::clone(&session.runtime));
    let worker = build(&queue, &settings, handlers, activity.clone())?;
    let id = worker.id().clone();
    let store = store_name(&queue);
    let started = Line::Started(StartedWorker {
        worker: &id,
        store: &store,
        types: settings.handlers.keys().collect(),
        queues: &settings.queues,
        slots: settings.concurrency,
    });
    started.print(&mut session.screen, session.runtime.now());

    let limits = ExitLimits {
        idle: args.exit_when_idle,
        attempts: args.max_tasks,
    };
    let mut run = WorkerRun {
        signals,
        activity,
        ended,
        runtime: Arc::clone(&session.runtime),
        shutdown_timeout: settings.shutdown_timeout,
    };
    let report = run.run(worker, limits, &mut session.screen).await;
    // A dropped handler may not have killed its command yet, and this process may exit first.
    groups.kill_all();
    let report = report?;
    let stopped = Line::Stopped {
        worker: &id,
        report: &report,
    };
    stopped.print(&mut session.screen, session.runtime.now());
    Ok(())
}

fn build(
    queue: &Queue,
    settings: &WorkerSettings,
    handlers: Vec<Box<dyn TaskHandler>>,
    activity: Activity,
) -> Result<Worker, Failure> {
    // Commands are killed and their last output is read before the worker abandons their handlers.
    let read_time = HANDLER_GRACE.min(settings.shutdown_timeout / 4);
    let mut builder = Worker::builder(queue.clone())
        .queues(settings.queues.iter().map(QueueName::as_str))
        .shards(settings.shards.clone())
        .concurrency(settings.concurrency)
        .shutdown_deadline(settings.shutdown_timeout)
        .grace(settings.kill_grace + read_time)
        .hook(activity);
    if let Some(id) = &settings.id {
        builder = builder.id(id.as_str());
    }
    if let Some(lease) = settings.lease {
        builder = builder.lease(lease);
    }
    if let Some(bytes) = settings.log_max_bytes {
        builder = builder.log_limit(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    if settings.no_monitor {
        builder = builder.no_maintenance();
    }
    for handler in handlers {
        builder = builder.handler(handler);
    }
    Ok(builder.build()?)
}

/// A running worker whose attempts are printed as they end.
struct WorkerRun {
    signals: Signals,
    activity: Activity,
    ended: mpsc::Receiver<EndedAttempt>,
    runtime: Arc<dyn Runtime>,
    shutdown_timeout: Duration,
}

impl WorkerRun {
    async fn run(
        &mut self,
        worker: Worker,
        limits: ExitLimits,
        screen: &mut Screen,
    ) -> Result<WorkerReport, Failure> {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let (idleness, requests) = (worker.idleness(), worker.requests());
        let work = worker.run_until(async move { stopped.cancelled().await });
        tokio::pin!(work);
        let reached = limits.reached(
            &self.signals,
            &self.activity,
            &idleness,
            &requests,
            &self.runtime,
        );
        let first = async {
            tokio::select! {
                biased;
                why = reached => Ok(why),
                // Without a stop, the worker ends only on an error.
                report = &mut work => Err(report),
            }
        };
        let why = match show_until(first, &mut self.ended, screen).await {
            Ok(why) => why,
            Err(report) => return Ok(report?),
        };
        stop.cancel();
        let stop_started = self.runtime.monotonic();
        let report = loop {
            let elapsed = self.runtime.monotonic().saturating_sub(stop_started);
            let line = Line::Stopping {
                why,
                running: self.activity.running(),
                left: self.shutdown_timeout.saturating_sub(elapsed),
            };
            line.print(screen, self.runtime.now());
            let next = async {
                tokio::select! {
                    biased;
                    () = self.signals.stop_at_once.cancelled() => Some(Err(interrupted())),
                    report = &mut work => Some(report.map_err(Failure::from)),
                    () = self.runtime.sleep(STOP_REPORT_INTERVAL) => None,
                }
            };
            if let Some(report) = show_until(next, &mut self.ended, screen).await {
                break report;
            }
        };
        while let Ok(ended) = self.ended.try_recv() {
            Line::Ended(&ended).print(screen, ended.at);
        }
        report
    }
}

/// The name of the queue's store.
pub(super) fn store_name(queue: &Queue) -> String {
    queue
        .store()
        .map_or_else(|| "the queue".to_owned(), |store| store.description.clone())
}

/// Prints ended attempts until the event occurs.
pub(super) async fn show_until<T>(
    event: impl Future<Output = T>,
    ended: &mut mpsc::Receiver<EndedAttempt>,
    screen: &mut Screen,
) -> T {
    tokio::pin!(event);
    loop {
        tokio::select! {
            biased;
            Some(ended) = ended.recv() => Line::Ended(&ended).print(screen, ended.at),
            output = &mut event => return output,
        }
    }
}

fn mode_name(mode: IndexMode) -> &'static str {
    match mode {
        IndexMode::IndexOnly => "index-only",
        IndexMode::Hybrid => "hybrid",
        IndexMode::LogScan => "log-scan",
    }
}

/// Creates the handlers.
fn handlers(
    settings: &WorkerSettings,
    environment: &Environment,
    groups: &Groups,
    runtime: &Arc<dyn Runtime>,
) -> Result<Vec<Box<dyn TaskHandler>>, Failure> {
    let lines = settings.http_headers.iter().map(String::as_str);
    let headers = Headers::parse(lines, &environment.variables)
        .map_err(|error| Failure::bad_input(error.to_string()))?;
    let inheritance = Inheritance {
        passed: settings.pass_env.clone(),
        withheld: headers.variables,
    };
    let exec = ExecSettings {
        output_max_bytes: settings.output_max_bytes,
        kill_grace: settings.kill_grace,
        environment: inheritance.select(&environment.variables),
        groups: groups.clone(),
        runtime: Arc::clone(runtime),
    };
    let needs_tls = settings.handlers.values().any(HandlerSpec::needs_tls);
    let mut http = None;
    let mut handlers: Vec<Box<dyn TaskHandler>> = Vec::new();
    for (task_type, spec) in &settings.handlers {
        match spec {
            HandlerSpec::Exec(command) => handlers.push(Box::new(ExecHandler::new(
                task_type.clone(),
                command.clone(),
                exec.clone(),
            ))),
            HandlerSpec::Wasi(settings) => handlers.push(wasi::handler(settings, environment)?),
            // It needs the queue, which is not open yet.
            HandlerSpec::Webhooks => {}
            HandlerSpec::Http(url) => {
                let target =
                    Target::parse(url, settings.allow_private_addresses).map_err(|error| {
                        Failure::bad_input(format!("handler for {task_type}: {error}"))
                    })?;
                let shared = if let Some(shared) = &http {
                    shared
                } else {
                    let headers = headers.headers.clone();
                    http.insert(http_settings(
                        headers,
                        settings.output_max_bytes,
                        settings.allow_private_addresses,
                        needs_tls,
                        runtime,
                    )?)
                };
                handlers.push(Box::new(HttpHandler::new(
                    task_type.clone(),
                    target,
                    shared.clone(),
                )));
            }
        }
    }
    Ok(handlers)
}

/// The handler of the deliveries of webhooks. Behind a server it could not sign anything.
fn deliveries(
    queue: &Queue,
    settings: &WorkerSettings,
    runtime: &Arc<dyn Runtime>,
) -> Result<Box<dyn TaskHandler>, Failure> {
    if queue.engine().duty() == Duty::None {
        return Err(Failure::bad_input(
            "a worker that uses a server cannot deliver to webhooks: servers do not show their secrets",
        )
        .hint("start the server with `qo serve --webhooks` instead"));
    }
    let handler = super::deliverer::handler(queue, settings.allow_private_addresses, runtime)?;
    Ok(Box::new(handler))
}

/// The client for the deliveries of webhooks.
pub(super) fn http_client(
    allow_private: bool,
    runtime: &Arc<dyn Runtime>,
) -> Result<HttpSettings, Failure> {
    http_settings(HeaderMap::new(), 0, allow_private, false, runtime)
}

fn http_settings(
    headers: HeaderMap,
    output_max_bytes: u64,
    allow_private: bool,
    needs_tls: bool,
    runtime: &Arc<dyn Runtime>,
) -> Result<HttpSettings, Failure> {
    HttpSettings::new(
        headers,
        output_max_bytes,
        allow_private,
        needs_tls,
        Arc::clone(runtime),
    )
    .map_err(|error| {
        let why = error
            .source()
            .map_or_else(|| error.to_string(), ToString::to_string);
        Failure::new(
            FailureKind::Other,
            format!("cannot create the HTTP client: {why}"),
        )
        .hint("the system's trusted certificates may be missing: install ca-certificates")
    })
}
