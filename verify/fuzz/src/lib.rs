//! What the fuzzers of qo run.
//!
//! A target is a function that takes any bytes and panics where a property does not hold: that what can be read is read again as the same
//! after it was written, that what is refused leaves nothing, that an answer has its form. The fuzzers of `fuzz/` call these functions with
//! bytes that they make up; the tests of this crate call them with every file of `fuzz/corpus/`. Targets that look at private parts of
//! a crate stand in that crate, behind its feature `fuzzing`.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

mod key;
mod task;

/// One target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: that of its fuzzer, and of the folder with its corpus.
    pub name: &'static str,
    /// What it tries.
    pub about: &'static str,
    /// Runs it.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, about: &'static str, run: fn(&[u8])) -> Target {
    Target { name, about, run }
}

/// All targets.
pub const TARGETS: [Target; 16] = [
    target(
        "task_record",
        "a stored task: written again, changed by every command, kept in memory",
        task::task_record,
    ),
    target(
        "key",
        "the keys of a bucket, and the names in them",
        key::key,
    ),
    target(
        "direct_records",
        "the small records of direct mode: queues, idempotency keys, workers, the sweeper",
        qo_direct::fuzz::direct_records,
    ),
    target(
        "broker_record",
        "the record that says which broker leads",
        qo_broker::fuzz::broker_record,
    ),
    target(
        "json_document",
        "the one JSON object of `?engine=json`",
        qo_broker::fuzz::json_document,
    ),
    target(
        "slate_key",
        "the keys of `?engine=slate`",
        qo_broker::fuzz::slate_key,
    ),
    target(
        "slate_row",
        "the rows of a live task of `?engine=slate`",
        qo_broker::fuzz::slate_row,
    ),
    target(
        "wire_bodies",
        "the JSON forms of the HTTP API",
        qo_remote::fuzz::wire_bodies,
    ),
    target(
        "http_request",
        "a request to a server on a queue in memory",
        qo_server::fuzz::http_request,
    ),
    target(
        "tokens",
        "tokens, and the object that holds them",
        qo_server::fuzz::tokens,
    ),
    target("store_url", "the URL of a store", qo_store::fuzz::store_url),
    target(
        "s3_documents",
        "the XML documents of an S3 server",
        qo_store::fuzz::s3_documents,
    ),
    target(
        "command_line",
        "a command line of `qo`",
        qo_cli::fuzz::command_line,
    ),
    target(
        "command_word",
        "durations, times and statuses on the command line",
        qo_cli::fuzz::command_word,
    ),
    target(
        "bulk_line",
        "a line of `qo submit --many`",
        qo_cli::fuzz::bulk_line,
    ),
    target("settings_file", "`qo.toml`", qo_cli::fuzz::settings_file),
];

/// Runs the target of this name.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.into_iter().find(|target| target.name == name);
    assert!(target.is_some(), "there is no target {name}");
    if let Some(target) = target {
        (target.run)(bytes);
    }
}
