//! How a worker is to work: flags above variables above `qo.toml` above defaults.
//!
//! Everything is checked here, before the store is even opened, so that a worker that starts has handlers that can run.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use qo::{IndexMode, QueueName, Shard, TaskType, WorkerId};

use crate::args::values;
use crate::args::worker::{WorkerArgs, concurrency, kill_grace, size};
use crate::config::Place;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::handlers::answer::OUTPUT_DEFAULT_MAX_BYTES;
use crate::handlers::exec::{CommandLine, KILL_GRACE_DEFAULT};

/// How many tasks run at once, unless it is said.
const CONCURRENCY_DEFAULT: usize = 10;

/// How long a stop waits for running tasks, unless it is said.
const SHUTDOWN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// The keys of `[worker]`.
const KEYS: [&str; 16] = [
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
    "max_output",
    "no_monitor",
    "pass_env",
    "queues",
    "shards",
    "shutdown_timeout",
];

/// What to do with the tasks of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Handling {
    /// Run a command.
    Exec(CommandLine),
    /// Send a request to this URL.
    Http(String),
}

impl Handling {
    /// Whether certificates are needed for it.
    pub(super) fn needs_tls(&self) -> bool {
        matches!(self, Self::Http(url) if !url.starts_with("http://"))
    }
}

/// How a worker is to work.
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
    pub(super) kill_grace: Duration,
    pub(super) pass_env: Vec<String>,
    pub(super) http_headers: Vec<String>,
    pub(super) allow_private_addresses: bool,
    pub(super) handlers: BTreeMap<TaskType, Handling>,
}

impl WorkerSettings {
    /// Puts together what flags, environment and the `[worker]` section say.
    pub(super) fn resolve(
        args: &WorkerArgs,
        environment: &Environment,
        path: &Path,
        section: &toml::Table,
    ) -> Result<Self, Failure> {
        let place = Place {
            path,
            section: "worker",
        };
        place.check_keys(section, &KEYS)?;
        let sources = Sources {
            environment,
            place,
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
            queues: sources.queues(args)?,
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
            kill_grace: sources
                .one(args.kill_grace, "QO_KILL_GRACE", "kill_grace", kill_grace)?
                // A short stop must leave tasks some time before they are told to end.
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
            handlers: handlers(args, place, section)?,
        })
    }
}

/// Where settings are looked up that no flag gives.
#[derive(Clone, Copy)]
struct Sources<'a> {
    environment: &'a Environment,
    place: Place<'a>,
    section: &'a toml::Table,
}

impl Sources<'_> {
    /// A setting with one value.
    fn one<T>(
        self,
        flag: Option<T>,
        variable: &str,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        if flag.is_some() {
            return Ok(flag);
        }
        if let Some(text) = self.environment.var(variable) {
            return parse(text)
                .map(Some)
                .map_err(|problem| wrong(variable, &problem));
        }
        let Some(value) = self.section.get(key) else {
            return Ok(None);
        };
        let text = self.text(key, value)?;
        parse(&text)
            .map(Some)
            .map_err(|problem| self.wrong_key(key, &problem))
    }

    /// A setting with several values.
    fn many<T: Clone>(
        self,
        flags: &[T],
        variable: &str,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, Failure> {
        if !flags.is_empty() {
            return Ok(flags.to_vec());
        }
        if let Some(text) = self.environment.var(variable) {
            let words = text
                .split(',')
                .map(str::trim)
                .filter(|word| !word.is_empty());
            return words
                .map(&parse)
                .collect::<Result<_, _>>()
                .map_err(|problem| wrong(variable, &problem));
        }
        let texts = self.texts(key)?;
        texts
            .iter()
            .map(|text| parse(text))
            .collect::<Result<_, _>>()
            .map_err(|problem| self.wrong_key(key, &problem))
    }

    /// The default queue, unless others are named; none at all stands for every queue that there is.
    fn queues(self, args: &WorkerArgs) -> Result<Vec<QueueName>, Failure> {
        if args.all_queues {
            return Ok(Vec::new());
        }
        let named = self.many(&args.queue, "QO_QUEUES", "queues", parsed)?;
        if !named.is_empty() {
            return Ok(named);
        }
        let all = self.one(None, "QO_ALL_QUEUES", "all_queues", switch)?;
        Ok(match all {
            Some(true) => Vec::new(),
            _ => vec![QueueName::default()],
        })
    }

    /// Headers have no variable of their own: variables are put into them.
    fn headers(self, flags: &[String]) -> Result<Vec<String>, Failure> {
        if flags.is_empty() {
            self.texts("http_headers")
        } else {
            Ok(flags.to_vec())
        }
    }

    /// A list of texts; an empty one, if there is none.
    fn texts(self, key: &str) -> Result<Vec<String>, Failure> {
        match self.section.get(key) {
            None => Ok(Vec::new()),
            Some(toml::Value::Array(values)) => {
                values.iter().map(|value| self.text(key, value)).collect()
            }
            Some(value) => Err(self
                .place
                .wrong_type(key, "a list, such as [\"a\", \"b\"]", value)),
        }
    }

    /// A value as the text that would be typed for it.
    fn text(self, key: &str, value: &toml::Value) -> Result<String, Failure> {
        match value {
            toml::Value::String(text) => Ok(text.clone()),
            toml::Value::Integer(number) => Ok(number.to_string()),
            toml::Value::Float(number) => Ok(number.to_string()),
            toml::Value::Boolean(value) => Ok(value.to_string()),
            other => Err(self.place.wrong_type(key, "a text or a number", other)),
        }
    }

    fn wrong_key(self, key: &str, problem: &str) -> Failure {
        let place = format!("\"worker.{key}\" in {}", self.place.path.display());
        wrong(&place, problem)
    }
}

fn wrong(place: &str, problem: &str) -> Failure {
    Failure::bad_input(format!("{place}: {problem}"))
}

fn parsed<T: std::str::FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn switch(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

/// The handlers of the flags, and those of the file for types that no flag names.
fn handlers(
    args: &WorkerArgs,
    place: Place<'_>,
    section: &toml::Table,
) -> Result<BTreeMap<TaskType, Handling>, Failure> {
    let mut handlers = BTreeMap::new();
    let exec = args.exec.iter().map(|(task_type, line)| {
        let command = CommandLine::Shell(line.clone());
        (task_type.clone(), Handling::Exec(command))
    });
    let http = args
        .http
        .iter()
        .map(|(task_type, url)| (task_type.clone(), Handling::Http(url.clone())));
    for (task_type, handling) in exec.chain(http) {
        if handlers.insert(task_type.clone(), handling).is_some() {
            return Err(twice(&task_type, "on the command line"));
        }
    }
    for (task_type, handling) in handlers_of_file(place, section)? {
        handlers.entry(task_type).or_insert(handling);
    }
    if handlers.is_empty() {
        return Err(Failure::bad_input(
            "this worker has no handlers, so that there is nothing it could do",
        )
        .hint(
            "say what to run for a task type, such as qo worker --exec hello=cat or --http hello=https://example.org/tasks, \
             or in qo.toml: [worker.exec.hello] command = \"cat\"",
        ));
    }
    Ok(handlers)
}

fn handlers_of_file(
    place: Place<'_>,
    section: &toml::Table,
) -> Result<BTreeMap<TaskType, Handling>, Failure> {
    let mut handlers = BTreeMap::new();
    for (kind, key) in [("exec", "command"), ("http", "url")] {
        for (name, value) in place.table(section, kind)? {
            let section = format!("worker.{kind}.{name}");
            let place = Place {
                path: place.path,
                section: &section,
            };
            let Some(table) = value.as_table() else {
                let wanted = format!("a table with the key {key}; a type with a dot needs quotes");
                return Err(place.wrong_type("", &wanted, &value));
            };
            place.check_keys(table, &[key])?;
            let task_type: TaskType = name.parse().map_err(|error| {
                Failure::bad_input(format!("{section:?} in {}: {error}", place.path.display()))
            })?;
            let handling = match (kind, table.get(key)) {
                (_, None) => {
                    return Err(Failure::bad_input(format!(
                        "{section:?} in {} has no {key}",
                        place.path.display()
                    )));
                }
                ("exec", Some(value)) => Handling::Exec(command(place, value)?),
                (_, Some(_)) => Handling::Http(place.text(table, key)?.unwrap_or_default()),
            };
            if handlers.insert(task_type.clone(), handling).is_some() {
                return Err(twice(&task_type, &place.path.display().to_string()));
            }
        }
    }
    Ok(handlers)
}

/// A line for the shell, or a program and its arguments.
fn command(place: Place<'_>, value: &toml::Value) -> Result<CommandLine, Failure> {
    let wanted = "a text for the shell, or a list with a program and its arguments";
    let wrong = || place.wrong_type("command", wanted, value);
    match value {
        toml::Value::String(line) if !line.trim().is_empty() => {
            Ok(CommandLine::Shell(line.clone()))
        }
        toml::Value::Array(values) => {
            let words: Option<Vec<String>> = values
                .iter()
                .map(|value| value.as_str().map(str::to_owned))
                .collect();
            match words.as_deref() {
                Some([program, arguments @ ..]) if !program.is_empty() => {
                    Ok(CommandLine::Program(program.clone(), arguments.to_vec()))
                }
                _ => Err(wrong()),
            }
        }
        _ => Err(wrong()),
    }
}

fn twice(task_type: &TaskType, place: &str) -> Failure {
    Failure::bad_input(format!(
        "there are two handlers for the type {task_type} ({place}); a type has one"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_flag_is_above_a_variable_above_the_file_above_the_default() {
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
    fn the_file_can_say_everything() {
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
        let handling = |name: &str| settings.handlers[&TaskType::new(name).unwrap()].clone();
        let program = CommandLine::Program("python3".into(), vec!["resize.py".into()]);
        assert_eq!(handling("demo.resize"), Handling::Exec(program));
        assert_eq!(
            handling("hello"),
            Handling::Exec(CommandLine::Shell("cat".into()))
        );
        assert_eq!(
            handling("invoice"),
            Handling::Http("https://example.org/".into())
        );
    }

    #[test]
    fn a_handler_of_a_flag_takes_the_place_of_the_files() {
        let file = "[http.hello]\nurl = 'https://example.org/'";
        let settings = resolve(&CAT, &[], file).unwrap();
        let hello = TaskType::new("hello").unwrap();
        assert!(matches!(settings.handlers[&hello], Handling::Exec(_)));
        assert_eq!(settings.handlers.len(), 1);
    }

    #[test]
    fn mistakes_are_named() {
        let message = |words: &[&str], variables: &[(&str, &str)], file: &str| {
            resolve(words, variables, file).unwrap_err().message
        };
        let none = resolve(&[], &[], "").unwrap_err();
        assert!(none.message.contains("no handlers"), "{none}");
        assert!(none.hint.unwrap().contains("qo worker --exec hello=cat"));
        let twice = ["--exec", "a=x", "--http", "a=https://example.org/"];
        assert!(message(&twice, &[], "").contains("two handlers for the type a"));
        let text = message(&CAT, &[("QO_CONCURRENCY", "many")], "");
        assert_eq!(text, "QO_CONCURRENCY: write a number from 1 to 1000");
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
