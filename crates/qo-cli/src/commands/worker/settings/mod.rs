//! Settings of a worker. Flags take precedence over variables, variables over `qo.toml`, and `qo.toml` over defaults.
//!
//! Everything is validated here, before the store is opened, so a worker that starts has handlers that can run.

mod handlers;
mod sources;
mod wasi;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use qo::{IndexMode, QueueName, Shard, TaskType, WorkerId};
use qo_core::webhook::delivery::QUEUE;

use crate::args::values;
use crate::args::worker::{WorkerArgs, concurrency, kill_grace, log_size, size};
use crate::config::ConfigSection;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::handlers::exec::KILL_GRACE_DEFAULT;
use crate::handlers::output::OUTPUT_DEFAULT_MAX_BYTES;

pub(super) use self::handlers::HandlerSpec;
use self::handlers::{delivers_webhooks, handlers};
use self::sources::{Sources, parsed, switch};
pub(super) use self::wasi::WasiSettings;

/// Default concurrency.
const CONCURRENCY_DEFAULT: usize = 10;

/// Default time that a stop waits for running tasks.
const SHUTDOWN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// The keys of `[worker]`.
const KEYS: [&str; 19] = [
    "all_queues",
    "allow_private_addresses",
    "concurrency",
    "exec",
    "http",
    "http_headers",
    "id",
    "index_mode",
    "kill_grace",
    "lease",
    "log_max",
    "max_output",
    "no_monitor",
    "pass_env",
    "queues",
    "shards",
    "shutdown_timeout",
    "wasi",
    "webhooks",
];

/// Settings of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkerSettings {
    pub(super) id: Option<WorkerId>,
    pub(super) queues: Vec<QueueName>,
    pub(super) shards: Vec<Shard>,
    pub(super) concurrency: usize,
    pub(super) lease: Option<Duration>,
    pub(super) shutdown_timeout: Duration,
    pub(super) index_mode: Option<IndexMode>,
    pub(super) no_monitor: bool,
    pub(super) output_max_bytes: u64,
    pub(super) log_max_bytes: Option<u64>,
    pub(super) kill_grace: Duration,
    pub(super) pass_env: Vec<String>,
    pub(super) http_headers: Vec<String>,
    pub(super) allow_private_addresses: bool,
    pub(super) handlers: BTreeMap<TaskType, HandlerSpec>,
}

impl WorkerSettings {
    /// Combines the flags, the environment and the `[worker]` section of `qo.toml`.
    pub(super) fn resolve(
        args: &WorkerArgs,
        environment: &Environment,
        path: &Path,
        section: &toml::Table,
    ) -> Result<Self, Failure> {
        let location = ConfigSection {
            path,
            name: "worker",
        };
        location.check_keys(section, &KEYS)?;
        let sources = Sources {
            environment,
            location,
            section,
        };
        let is_set = |flag: bool| flag.then_some(true);
        let shutdown_timeout = sources
            .one(
                args.shutdown_timeout,
                "QO_SHUTDOWN_TIMEOUT",
                "shutdown_timeout",
                values::duration,
            )?
            .unwrap_or(SHUTDOWN_TIMEOUT_DEFAULT);
        Ok(Self {
            id: sources.one(args.id.clone(), "QO_WORKER_ID", "id", parsed)?,
            queues: with_deliveries(sources.queues(args)?, delivers_webhooks(args, sources)?)?,
            shards: sources.many(&args.shards, "QO_SHARDS", "shards", parsed)?,
            concurrency: sources
                .one(
                    args.concurrency,
                    "QO_CONCURRENCY",
                    "concurrency",
                    concurrency,
                )?
                .unwrap_or(CONCURRENCY_DEFAULT),
            lease: sources.one(args.lease, "QO_LEASE", "lease", values::positive_duration)?,
            shutdown_timeout,
            index_mode: sources.one(args.index_mode, "QO_INDEX_MODE", "index_mode", parsed)?,
            no_monitor: sources
                .one(
                    is_set(args.no_monitor),
                    "QO_NO_MONITOR",
                    "no_monitor",
                    switch,
                )?
                .unwrap_or(false),
            output_max_bytes: sources
                .one(args.max_output, "QO_MAX_OUTPUT", "max_output", size)?
                .unwrap_or(OUTPUT_DEFAULT_MAX_BYTES),
            log_max_bytes: sources.one(args.log_max, "QO_LOG_MAX", "log_max", log_size)?,
            kill_grace: sources
                .one(args.kill_grace, "QO_KILL_GRACE", "kill_grace", kill_grace)?
                // A short shutdown timeout must leave running tasks some time before they are asked to stop.
                .unwrap_or_else(|| KILL_GRACE_DEFAULT.min(shutdown_timeout / 4)),
            pass_env: sources.many(&args.pass_env, "QO_PASS_ENV", "pass_env", parsed)?,
            http_headers: sources.headers(&args.http_header)?,
            allow_private_addresses: sources
                .one(
                    is_set(args.allow_private_addresses),
                    "QO_ALLOW_PRIVATE_ADDRESSES",
                    "allow_private_addresses",
                    switch,
                )?
                .unwrap_or(false),
            handlers: handlers(args, sources)?,
        })
    }
}

/// Adds the queue of deliveries to those that the worker serves, if it delivers and does not serve all of them.
fn with_deliveries(mut queues: Vec<QueueName>, delivers: bool) -> Result<Vec<QueueName>, Failure> {
    let deliveries = QueueName::new(QUEUE).map_err(qo::Error::from)?;
    if delivers && !queues.is_empty() && !queues.contains(&deliveries) {
        queues.push(deliveries);
    }
    Ok(queues)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::exec::CommandLine;

    fn resolve(
        words: &[&str],
        variables: &[(&str, &str)],
        file: &str,
    ) -> Result<WorkerSettings, Failure> {
        use clap::Parser;
        #[derive(Parser)]
        struct Cli {
            #[command(flatten)]
            worker: WorkerArgs,
        }
        let words = std::iter::once("worker").chain(words.iter().copied());
        let args = Cli::try_parse_from(words).unwrap().worker;
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let environment = Environment {
            variables: variables.collect(),
            ..Environment::default()
        };
        let section = toml::from_str(file).unwrap();
        WorkerSettings::resolve(&args, &environment, Path::new("qo.toml"), &section)
    }

    const CAT: [&str; 2] = ["--exec", "hello=cat"];

    #[test]
    fn flags_override_variables_override_the_file_overrides_defaults() {
        let variable = [("QO_CONCURRENCY", "3")];
        let file = "concurrency = 2";
        let flags = ["--exec", "hello=cat", "--concurrency", "4"];
        let concurrency = |words: &[&str], variables: &[(&str, &str)], file| {
            resolve(words, variables, file).unwrap().concurrency
        };
        assert_eq!(concurrency(&flags, &variable, file), 4);
        assert_eq!(concurrency(&CAT, &variable, file), 3);
        assert_eq!(concurrency(&CAT, &[], file), 2);
        assert_eq!(concurrency(&CAT, &[], ""), 10);

        let grace = |file| resolve(&CAT, &[], file).unwrap().kill_grace.as_millis();
        assert_eq!(grace(""), 5_000);
        assert_eq!(grace("shutdown_timeout = 2"), 500);
        assert_eq!(grace("shutdown_timeout = 2\nkill_grace = 3"), 3_000);

        let queues = |words: &[&str], file| {
            let words = [&CAT, words].concat();
            let queues = resolve(&words, &[], file).unwrap().queues;
            queues.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(queues(&[], ""), ["default"]);
        assert_eq!(queues(&["--queue", "a,b"], "all_queues = true"), ["a", "b"]);
        assert!(queues(&[], "all_queues = true").is_empty());
        assert!(queues(&["--all-queues"], "queues = ['a']").is_empty());
    }

    #[test]
    fn the_file_can_set_everything() {
        let settings = resolve(
            &[],
            &[],
            r#"
            id = "w1"
            queues = ["a", "b"]
            shards = ["0", "f"]
            lease = "1m"
            shutdown_timeout = 10
            index_mode = "hybrid"
            no_monitor = true
            max_output = "64KiB"
            kill_grace = "1s"
            pass_env = ["AWS_*"]
            http_headers = ["X-Key: ${KEY}"]
            allow_private_addresses = true
            [exec."demo.resize"]
            command = ["python3", "resize.py"]
            [exec.hello]
            command = "cat"
            [http.invoice]
            url = "https://example.org/"
            "#,
        )
        .unwrap();
        assert_eq!(settings.queues.len(), 2);
        assert_eq!(settings.shards.len(), 2);
        assert_eq!(settings.lease, Some(Duration::from_mins(1)));
        assert_eq!(settings.shutdown_timeout, Duration::from_secs(10));
        assert_eq!(settings.index_mode, Some(IndexMode::Hybrid));
        assert!(settings.no_monitor && settings.allow_private_addresses);
        assert_eq!(settings.output_max_bytes, 65_536);
        let spec = |name: &str| settings.handlers[&TaskType::new(name).unwrap()].clone();
        let program = CommandLine::Program("python3".into(), vec!["resize.py".into()]);
        assert_eq!(spec("demo.resize"), HandlerSpec::Exec(program));
        assert_eq!(
            spec("hello"),
            HandlerSpec::Exec(CommandLine::Shell("cat".into()))
        );
        assert_eq!(
            spec("invoice"),
            HandlerSpec::Http("https://example.org/".into())
        );
    }

    #[test]
    fn wasi_jobs_are_on_by_flag_variable_or_table() {
        let wasi = |words: &[&str], variables: &[(&str, &str)], file: &str| {
            let words = [&CAT, words].concat();
            let settings = resolve(&words, variables, file).unwrap();
            match settings.handlers.get(&TaskType::new("wasi").unwrap()) {
                Some(HandlerSpec::Wasi(settings)) => Some(settings.clone()),
                _ => None,
            }
        };
        assert_eq!(wasi(&[], &[], ""), None);
        assert_eq!(wasi(&[], &[("QO_WASI", "no")], "[wasi]"), None);
        assert!(wasi(&[], &[("QO_WASI", "yes")], "").is_some());
        assert!(wasi(&["--wasi"], &[("QO_WASI", "no")], "").is_some());
        let file = "[wasi]\ndirs = ['/a::/b:ro']\nenv = ['A=1']\nnet = true\nmemory = '1MiB'\noutput = 5\ncache = 'none'";
        let settings = wasi(&[], &[], file).unwrap();
        assert_eq!(settings.directories, ["/a::/b:ro"]);
        assert_eq!(settings.variables, ["A=1"]);
        assert_eq!(settings.network, ["all"]);
        assert_eq!(settings.memory_max_bytes, Some(1 << 20));
        assert_eq!(settings.output_max_bytes, Some(5));
        assert_eq!(settings.cache.as_deref(), Some("none"));
        let flags = ["--wasi", "--wasi-memory", "2MiB", "--wasi-env", "B=2"];
        let settings = wasi(&flags, &[("QO_WASI_MEMORY", "3MiB")], file).unwrap();
        assert_eq!(settings.memory_max_bytes, Some(2 << 20));
        assert_eq!(settings.variables, ["B=2"]);
        let network = |words: &[&str], variables: &[(&str, &str)], file: &str| {
            let words = [&["--wasi"], words].concat();
            wasi(&words, variables, file).unwrap().network
        };
        let (list, off) = ("[wasi]\nnet = ['a:1', 'b:2']", [("QO_WASI_NET", "false")]);
        assert_eq!(network(&["--wasi-net"], &off, list), ["all"]);
        let flags = ["--wasi-net=a:3,b:4", "--wasi-net=c:5"];
        assert_eq!(network(&flags, &off, list), ["a:3", "b:4", "c:5"]);
        assert!(network(&[], &off, list).is_empty() && network(&[], &off, file).is_empty());
        assert_eq!(
            network(&[], &[("QO_WASI_NET", "a:3, b:4")], list),
            ["a:3", "b:4"]
        );
        assert_eq!(network(&[], &[("QO_WASI_NET", "1")], list), ["all"]);
        assert_eq!(network(&[], &[], list), ["a:1", "b:2"]);
        let bad = resolve(&CAT, &[], "[wasi]\nmemory = 'much'").unwrap_err();
        assert!(bad.message.contains("\"worker.wasi.memory\""), "{bad}");
        let bad = resolve(&CAT, &[], "[wasi]\nmemroy = 1").unwrap_err();
        assert!(bad.message.contains("worker.wasi.memroy"), "{bad}");
        let twice = ["--wasi", "--exec", "wasi=cat"];
        let bad = resolve(&twice, &[], "").unwrap_err();
        assert!(bad.message.contains("two handlers for type wasi"), "{bad}");
    }

    #[test]
    fn webhooks_are_delivered_by_flag_variable_or_key() {
        let queues = |words: &[&str], variables: &[(&str, &str)], file: &str| {
            let queues = resolve(words, variables, file).unwrap().queues;
            queues.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(queues(&["--webhooks"], &[], ""), ["default", "webhooks"]);
        assert_eq!(
            queues(&CAT, &[("QO_WEBHOOKS", "yes")], ""),
            ["default", "webhooks"]
        );
        assert_eq!(
            queues(&CAT, &[], "webhooks = true"),
            ["default", "webhooks"]
        );
        assert_eq!(
            queues(&CAT, &[("QO_WEBHOOKS", "no")], "webhooks = true"),
            ["default"]
        );
        let words = ["--webhooks", "--queue", "webhooks"];
        assert_eq!(queues(&words, &[], ""), ["webhooks"]);
        assert!(queues(&["--webhooks", "--all-queues"], &[], "").is_empty());
        let twice = ["--webhooks", "--exec", "qo.webhook=cat"];
        let bad = resolve(&twice, &[], "").unwrap_err();
        assert!(
            bad.message.contains("two handlers for type qo.webhook"),
            "{bad}"
        );
    }

    #[test]
    fn a_handler_from_a_flag_replaces_one_from_the_file() {
        let file = "[http.hello]\nurl = 'https://example.org/'";
        let settings = resolve(&CAT, &[], file).unwrap();
        let hello = TaskType::new("hello").unwrap();
        assert!(matches!(settings.handlers[&hello], HandlerSpec::Exec(_)));
        assert_eq!(settings.handlers.len(), 1);
    }

    #[test]
    fn errors_name_the_setting() {
        let message = |words: &[&str], variables: &[(&str, &str)], file: &str| {
            resolve(words, variables, file).unwrap_err().message
        };
        let none = resolve(&[], &[], "").unwrap_err();
        assert!(none.message.contains("no handlers"), "{none}");
        assert!(none.hint.unwrap().contains("qo worker --exec hello=cat"));
        let twice = ["--exec", "a=x", "--http", "a=https://example.org/"];
        assert!(message(&twice, &[], "").contains("two handlers for type a"));
        let text = message(&CAT, &[("QO_CONCURRENCY", "many")], "");
        assert_eq!(text, "QO_CONCURRENCY: expected a number from 1 to 1000");
        let text = message(&CAT, &[], "lease = 'soon'");
        assert!(
            text.contains("\"worker.lease\" in qo.toml: not a duration"),
            "{text}"
        );
        let text = message(&CAT, &[], "concurency = 2");
        assert!(text.contains("unknown key \"worker.concurency\""), "{text}");
        let text = message(&[], &[], "[exec.a]\nline = 'x'");
        assert!(text.contains("\"worker.exec.a.line\""), "{text}");
        let text = message(&[], &[], "[exec.a]\ncommand = []");
        assert!(text.contains("a program and its arguments"), "{text}");
        let text = message(&[], &[], "[exec.a]\n");
        assert!(text.contains("has no command"), "{text}");
        let text = message(&[], &[], "[exec.a.b]\ncommand = 'x'");
        assert!(
            text.contains("unknown key") || text.contains("has no command"),
            "{text}"
        );
    }
}
