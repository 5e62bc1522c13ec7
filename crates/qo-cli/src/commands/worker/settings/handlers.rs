//! The handlers of a worker, from flags and from `qo.toml`.

use std::collections::BTreeMap;

use qo::TaskType;
use qo_core::webhook::delivery::TASK_TYPE;

use crate::args::worker::WorkerArgs;
use crate::config::ConfigSection;
use crate::failure::Failure;
use crate::handlers::exec::CommandLine;

use super::sources::{Sources, switch};
use super::wasi::WasiSettings;

/// How to handle the tasks of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands::worker) enum HandlerSpec {
    /// Run a command.
    Exec(CommandLine),
    /// Send a request to this URL.
    Http(String),
    /// Run WASI jobs.
    Wasi(Box<WasiSettings>),
    /// Deliver the notifications of webhooks.
    Webhooks,
}

impl HandlerSpec {
    /// Whether the handler needs TLS certificates.
    pub(in crate::commands::worker) fn needs_tls(&self) -> bool {
        matches!(self, Self::Http(url) if !url.starts_with("http://"))
    }
}

/// The handlers from the flags, and those from the file for types that no flag names.
pub(super) fn handlers(
    args: &WorkerArgs,
    sources: Sources<'_>,
) -> Result<BTreeMap<TaskType, HandlerSpec>, Failure> {
    let mut handlers = BTreeMap::new();
    let exec = args.exec.iter().map(|(task_type, line)| {
        let command = CommandLine::Shell(line.clone());
        (task_type.clone(), HandlerSpec::Exec(command))
    });
    let http = args
        .http
        .iter()
        .map(|(task_type, url)| (task_type.clone(), HandlerSpec::Http(url.clone())));
    for (task_type, spec) in exec.chain(http) {
        if handlers.insert(task_type.clone(), spec).is_some() {
            return Err(duplicate(&task_type, "on the command line"));
        }
    }
    for (task_type, spec) in handlers_from_file(sources.location, sources.section)? {
        handlers.entry(task_type).or_insert(spec);
    }
    if let Some(settings) = WasiSettings::resolve(&args.wasi, sources)? {
        let task_type = TaskType::new(qo_blob::job::TASK_TYPE).map_err(qo::Error::from)?;
        let spec = HandlerSpec::Wasi(Box::new(settings));
        if handlers.insert(task_type.clone(), spec).is_some() {
            return Err(duplicate(&task_type, "--wasi handles it, too"));
        }
    }
    if delivers_webhooks(args, sources)? {
        let task_type = TaskType::new(TASK_TYPE).map_err(qo::Error::from)?;
        if handlers
            .insert(task_type.clone(), HandlerSpec::Webhooks)
            .is_some()
        {
            return Err(duplicate(&task_type, "--webhooks handles it, too"));
        }
    }
    if handlers.is_empty() {
        return Err(Failure::bad_input(
            "this worker has no handlers",
        )
        .hint(
            "add one for a task type, such as qo worker --exec hello=cat or --http hello=https://example.org/tasks, \
             or --wasi for WASI jobs, or --webhooks for notifications, \
             or in qo.toml: [worker.exec.hello] command = \"cat\"",
        ));
    }
    Ok(handlers)
}

/// Whether the worker delivers the notifications of webhooks.
pub(super) fn delivers_webhooks(args: &WorkerArgs, sources: Sources<'_>) -> Result<bool, Failure> {
    let flag = args.webhooks.then_some(true);
    let set = sources.one(flag, "QO_WEBHOOKS", "webhooks", switch)?;
    Ok(set.unwrap_or(false))
}

fn handlers_from_file(
    location: ConfigSection<'_>,
    section: &toml::Table,
) -> Result<BTreeMap<TaskType, HandlerSpec>, Failure> {
    let mut handlers = BTreeMap::new();
    for (kind, key) in [("exec", "command"), ("http", "url")] {
        for (name, value) in location.table(section, kind)? {
            let section = format!("worker.{kind}.{name}");
            let location = ConfigSection {
                path: location.path,
                name: &section,
            };
            let Some(table) = value.as_table() else {
                let expected =
                    format!("a table with the key {key}; a type with a dot needs quotes");
                return Err(location.wrong_type("", &expected, &value));
            };
            location.check_keys(table, &[key])?;
            let task_type: TaskType = name.parse().map_err(|error| {
                Failure::bad_input(format!(
                    "{section:?} in {}: {error}",
                    location.path.display()
                ))
            })?;
            let spec = match (kind, table.get(key)) {
                (_, None) => {
                    return Err(Failure::bad_input(format!(
                        "{section:?} in {} has no {key}",
                        location.path.display()
                    )));
                }
                ("exec", Some(value)) => HandlerSpec::Exec(command(location, value)?),
                (_, Some(_)) => HandlerSpec::Http(location.text(table, key)?.unwrap_or_default()),
            };
            if handlers.insert(task_type.clone(), spec).is_some() {
                return Err(duplicate(&task_type, &location.path.display().to_string()));
            }
        }
    }
    Ok(handlers)
}

/// Parses a shell command line, or a program and its arguments.
fn command(location: ConfigSection<'_>, value: &toml::Value) -> Result<CommandLine, Failure> {
    let expected = "a string for the shell, or a list with a program and its arguments";
    let wrong = || location.wrong_type("command", expected, value);
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

fn duplicate(task_type: &TaskType, source: &str) -> Failure {
    Failure::bad_input(format!(
        "two handlers for type {task_type} ({source}); a type can have only one"
    ))
}
