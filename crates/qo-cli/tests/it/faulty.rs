//! The command on an S3 server whose requests fail: once, always, or for lack of a permission.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_testkit::http::{Request, Response};
use qo_testkit::proxy::{Fate, Proxy};
use qo_testkit::{SeaweedFs, wait_until};
use rustix::process::Signal;

use crate::workspace::{CommandResult, RunningCommand, Workspace};

/// Time limit for any step on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// The id of a task that does not exist.
const TASK: &str = "550e8400-e29b-41d4-a716-446655440000";

/// A bucket behind a proxy.
struct FaultyBucket {
    workspace: Workspace,
    bucket: String,
    proxy: Proxy,
}

impl FaultyBucket {
    fn new(decide: impl Fn(&Request) -> Fate + Send + Sync + 'static) -> Self {
        let server = SeaweedFs::shared().unwrap();
        let upstream = server.endpoint().strip_prefix("http://").unwrap();
        Self {
            workspace: Workspace::new(),
            bucket: server.unique_bucket("faulty").unwrap(),
            proxy: Proxy::start(upstream.parse().unwrap(), decide).unwrap(),
        }
    }

    fn command(&self, endpoint: &str, words: &[&str]) -> Command {
        let server = SeaweedFs::shared().unwrap();
        let mut command = self.workspace.bare(words);
        command
            .env("QO_STORE", format!("s3://{}", self.bucket))
            .envs(server.variables())
            .env("S3_ENDPOINT", endpoint)
            .env("NO_COLOR", "1");
        command
    }

    /// Runs the command past the proxy.
    fn directly(&self, words: &[&str]) -> CommandResult {
        let endpoint = SeaweedFs::shared().unwrap().endpoint();
        self.run(self.command(endpoint, words))
    }

    /// Runs the command through the proxy.
    fn qo(&self, words: &[&str]) -> CommandResult {
        self.run(self.command(&self.proxy.url(), words))
    }

    /// Starts the command through the proxy.
    fn start(&self, words: &[&str]) -> RunningCommand {
        let mut command = self.command(&self.proxy.url(), words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        RunningCommand::spawn(&mut command)
    }

    #[expect(clippy::unused_self, reason = "reads better at the call")]
    fn run(&self, mut command: Command) -> CommandResult {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        RunningCommand::spawn(&mut command).end()
    }

    fn submit(&self, task_type: &str) -> String {
        let result = self.directly(&["submit", "--type", task_type, "--input", "1"]);
        result.assert(0).stdout.trim().to_owned()
    }
}

/// What a request is for, as S3's permissions distinguish it.
fn kind_of(request: &Request) -> String {
    let is_bucket = request.path.trim_matches('/').split('/').count() < 2;
    let target = if is_bucket { "bucket" } else { "object" };
    let settings = [
        "versioning",
        "versions",
        "lifecycle",
        "cors",
        "policy",
        "delete",
    ];
    let names = request.query().split('&');
    let mut names = names.map(|pair| pair.split('=').next().unwrap_or_default());
    let setting = names.find(|name| settings.contains(name)).unwrap_or("");
    format!("{} {target} {setting}", request.method)
}

/// The kinds of requests of which one has failed.
type FailedKinds = Arc<Mutex<BTreeSet<String>>>;

/// A bucket in which the first request of each kind fails in this way, until the kinds are cleared.
fn each_kind_fails_once(fault: &Fate) -> (FaultyBucket, FailedKinds) {
    let failed = FailedKinds::default();
    let (seen, fault) = (Arc::clone(&failed), fault.clone());
    let bucket = FaultyBucket::new(move |request| {
        if seen.lock().unwrap().insert(kind_of(request)) {
            fault.clone()
        } else {
            Fate::Forward
        }
    });
    (bucket, failed)
}

/// Runs every command while the first request of each kind fails in this way. One failure may never end a command.
fn every_command_survives(fault: &Fate) {
    let (bucket, failed) = each_kind_fails_once(fault);
    let run = |words: &[&str]| {
        failed.lock().unwrap().clear();
        let result = bucket.qo(words);
        let kinds = failed.lock().unwrap().clone();
        assert_eq!(result.code, 0, "{words:?} after {kinds:?}: {result:#?}");
        result.stdout
    };
    run(&["init"]);
    let id = run(&["submit", "--type", "t", "--input", "1"]);
    let id = id.trim();
    bucket.workspace.file("lines", "1\n2\n3\n");
    run(&["submit", "--type", "t", "--many", "lines"]);
    run(&["list"]);
    run(&["status", id]);
    run(&["stats"]);
    run(&["pause", "default"]);
    run(&["resume", "default"]);
    run(&["worker", "--exec", "t=cat", "--exit-when-idle", "100ms"]);
    let task = bucket.directly(&["status", id, "--json"]);
    assert!(task.stdout.contains("\"completed\""), "{task:#?}");
    run(&["wait", id]);
    run(&["history", id]);
    run(&["logs", id]);
    run(&["errors"]);
    run(&["replay", id]);
    run(&["run-now", &bucket_delayed(&bucket)]);
    run(&["redrive", id, "--to", "elsewhere"]);
    run(&["cancel", id]);
    run(&["archive", id]);
    run(&["unarchive", id]);
    run(&["purge", id, "--yes"]);
    run(&["workers"]);
    run(&["token", "create", "--name", "n", "--scope", "read"]);
    run(&["token", "list"]);
    change_documents(&run);
    use_blobs(&bucket, &run);
    run(&["doctor"]);
}

/// The commands that change the documents of a queue.
fn change_documents(run: &impl Fn(&[&str]) -> String) {
    run(&["queue", "set", "mail", "--retries", "8"]);
    run(&["queue", "show", "mail"]);
    run(&["queue", "list"]);
    run(&["limit", "set", "l", "--key", "k", "--concurrent", "1"]);
    run(&["limit", "show", "l"]);
    run(&["limit", "list"]);
    run(&["limit", "remove", "l"]);
    run(&["schedule", "add", "s", "--cron", "0 0 1 1 *", "--type", "t"]);
    run(&["schedule", "list"]);
    run(&["schedule", "show", "s"]);
    run(&["schedule", "pause", "s"]);
    run(&["schedule", "resume", "s"]);
    run(&["schedule", "trigger", "s"]);
    let (from, to) = ("2024-12-31T00:00:00Z", "2025-01-02T00:00:00Z");
    run(&["schedule", "backfill", "s", "--from", from, "--to", to]);
    run(&["schedule", "remove", "s"]);
    run(&["webhook", "add", "w", "https://example.org/hook"]);
    run(&["webhook", "list"]);
    run(&["webhook", "show", "w"]);
    run(&["webhook", "test", "w"]);
    run(&["webhook", "remove", "w"]);
}

fn use_blobs(bucket: &FaultyBucket, run: &impl Fn(&[&str]) -> String) {
    bucket.workspace.file("data", "some bytes");
    let address = run(&["blob", "put", "data"]);
    let address = address.trim();
    run(&["blob", "list"]);
    assert_eq!(run(&["blob", "get", address]), "some bytes");
    run(&["blob", "gc", "--dry-run"]);
    run(&["blob", "delete", address]);
}

/// A task that is not due yet.
fn bucket_delayed(bucket: &FaultyBucket) -> String {
    let words = ["submit", "--type", "t", "--input", "1", "--delay", "1h"];
    bucket.directly(&words).assert(0).stdout.trim().to_owned()
}

#[test]
fn one_server_error_of_each_kind_ends_no_command() {
    every_command_survives(&Fate::Answer(Response::made_up(500, "InternalError")));
}

#[test]
fn one_lost_connection_of_each_kind_ends_no_command() {
    every_command_survives(&Fate::Drop);
}

/// The URL at which a server says that it serves.
fn serving_at(server: &mut RunningCommand) -> Option<String> {
    let mut line = String::new();
    let mut output = BufReader::new(server.stdout());
    output.read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1)?;
    Some(address.split_whitespace().next()?.to_owned())
}

/// Starts a server on a new bucket while the first request of each kind fails.
fn a_server_starts_and_stops(engine: &str) {
    for fault in [
        Fate::Answer(Response::made_up(500, "InternalError")),
        Fate::Drop,
    ] {
        let (bucket, failed) = each_kind_fails_once(&fault);
        let store = format!("s3://{}{engine}", bucket.bucket);
        let words = ["serve", "--listen", "127.0.0.1:0", "--store", &store];
        let mut server = bucket.start(&words);
        let serves = serving_at(&mut server).is_some();
        let kinds = failed.lock().unwrap().clone();
        if serves {
            server.signal(Signal::TERM);
        }
        let ended = server.end();
        assert!(serves, "{fault:?} of {kinds:?}: {ended:#?}");
        assert!(kinds.contains("PUT object "), "{kinds:?}");
        assert_eq!(ended.code, 0, "{fault:?}: {ended:#?}");
    }
}

#[test]
fn one_failure_of_each_kind_ends_no_server_in_direct_mode() {
    a_server_starts_and_stops("");
}

#[test]
fn one_failure_of_each_kind_ends_no_server_on_one_object() {
    a_server_starts_and_stops("?engine=json");
}

#[test]
fn one_failure_of_each_kind_ends_no_broker() {
    a_server_starts_and_stops("?engine=slate");
}

/// What `submit --many` says about three tasks on a bucket whose requests for tasks meet these fates. The requests that only read meet the second.
fn many_meet(write: Fate, read: Fate) -> (FaultyBucket, CommandResult) {
    let bucket = FaultyBucket::new(move |request| match request.method.as_str() {
        _ if !request.path.contains("/tasks/") => Fate::Forward,
        "PUT" => write.clone(),
        _ => read.clone(),
    });
    // The verdict about the store is there, so nothing needs to be written to trust it.
    bucket.directly(&["list"]).assert(0);
    bucket.workspace.file("lines", "1\n2\n3\n");
    let result = bucket.qo(&["submit", "--type", "t", "--many", "lines"]);
    (bucket, result)
}

#[test]
fn many_tasks_that_the_store_does_not_confirm_are_not_called_failed() {
    let (bucket, result) = many_meet(Fate::LoseResponse, Fate::Drop);
    result.assert(5);
    let expected = "0 tasks submitted, 3 unconfirmed (they may be stored)";
    assert!(result.stderr.contains(expected), "{result:#?}");
    // They are stored indeed.
    let listed = bucket.directly(&["list", "--json"]);
    let tasks = listed.assert(0).stdout.lines().count();
    assert_eq!(tasks, 3, "{listed:#?}");
}

#[test]
fn many_tasks_that_the_store_refuses_are_called_failed() {
    let denied = Fate::Answer(Response::made_up(403, "AccessDenied"));
    let (_, result) = many_meet(denied, Fate::Forward);
    result.assert(6);
    let expected = "0 tasks submitted, 3 failed";
    assert!(result.stderr.contains(expected), "{result:#?}");
    assert!(!result.stderr.contains("unconfirmed"), "{result:#?}");
}

#[test]
fn a_list_without_a_response_is_not_called_a_write() {
    let bucket = FaultyBucket::new(|request| match request.method.as_str() {
        "GET" => Fate::Drop,
        _ => Fate::Forward,
    });
    let result = bucket.qo(&["list"]);
    result.assert(5);
    assert!(!result.stderr.contains("applied"), "{result:#?}");
}

/// A worker with `--exit-when-idle` meets requests that fail. It may exit only when it has seen that there is nothing to do.
fn is_not_idle_while(fails: impl Fn(&Request) -> bool + Send + Sync + 'static, fault: &Fate) {
    let broken = Arc::new(AtomicBool::new(true));
    let failures = Arc::new(AtomicUsize::new(0));
    let fault = fault.clone();
    let bucket = FaultyBucket::new({
        let (broken, failures) = (Arc::clone(&broken), Arc::clone(&failures));
        move |request| {
            if broken.load(Ordering::SeqCst) && fails(request) {
                failures.fetch_add(1, Ordering::SeqCst);
                return fault.clone();
            }
            Fate::Forward
        }
    });
    let id = bucket.submit("t");
    let worker = bucket.start(&["worker", "--exec", "t=cat", "--exit-when-idle", "100ms"]);
    let has_failed = wait_until(LIMIT, || failures.load(Ordering::SeqCst) >= 4);
    assert!(has_failed, "{:#?}", worker.end());
    broken.store(false, Ordering::SeqCst);
    let ended = worker.end();
    let task = bucket.directly(&["status", &id, "--json"]);
    assert!(
        task.stdout.contains("\"completed\""),
        "{ended:#?}\n{task:#?}"
    );
    ended.assert(0);
}

fn is_list_of(request: &Request, prefix: &str) -> bool {
    kind_of(request) == "GET bucket " && request.query().contains(&format!("prefix={prefix}"))
}

#[test]
fn a_worker_that_cannot_list_is_not_idle() {
    let error = Fate::Answer(Response::made_up(500, "InternalError"));
    is_not_idle_while(|request| is_list_of(request, "ready"), &error);
}

#[test]
fn a_worker_that_cannot_read_is_not_idle() {
    let denied = Fate::Answer(Response::made_up(403, "AccessDenied"));
    let reads = |request: &Request| request.method == "GET" && request.path.contains("/tasks/");
    is_not_idle_while(reads, &denied);
}

#[test]
fn a_worker_that_cannot_claim_is_not_idle() {
    let denied = Fate::Answer(Response::made_up(403, "AccessDenied"));
    let writes = |request: &Request| request.method == "PUT" && request.path.contains("/tasks/");
    is_not_idle_while(writes, &denied);
}

/// The response to a request of credentials that may not write.
fn read_only(request: &Request) -> Fate {
    match request.method.as_str() {
        "GET" | "HEAD" => Fate::Forward,
        _ => Fate::Answer(Response::made_up(403, "AccessDenied")),
    }
}

#[test]
fn credentials_that_may_not_write_are_denied_on_a_new_bucket() {
    let bucket = FaultyBucket::new(read_only);
    for words in [&["submit", "--type", "t"][..], &["list"], &["init"]] {
        let result = bucket.qo(words);
        assert_eq!(result.code, 6, "{words:?}: {result:#?}");
        assert!(result.stderr.contains("AccessDenied"), "{result:#?}");
    }
}

#[test]
fn a_server_does_not_start_with_credentials_that_may_not_write() {
    let bucket = FaultyBucket::new(read_only);
    // The verdict about the store is there, so nothing needs to be written to trust it.
    bucket.directly(&["list"]).assert(0);
    let result = bucket.qo(&["serve", "--listen", "127.0.0.1:0"]);
    result.assert(6);
    assert!(result.stderr.contains("writing"), "{result:#?}");
}

#[test]
fn credentials_that_may_not_delete_are_denied_and_the_store_is_not_blamed() {
    let bucket = FaultyBucket::new(|request| {
        let denied = "<Code>AccessDenied</Code><Message>made up</Message>";
        match kind_of(request).as_str() {
            "DELETE object " => Fate::Answer(Response::made_up(403, "AccessDenied")),
            "POST bucket delete" => {
                let body = String::from_utf8_lossy(&request.body);
                let keys = body
                    .split("<Key>")
                    .skip(1)
                    .map(|rest| rest.split('<').next().unwrap_or(rest));
                let errors: Vec<String> = keys
                    .map(|key| format!("<Error><Key>{key}</Key>{denied}</Error>"))
                    .collect();
                let errors = errors.concat();
                Fate::Answer(Response::xml(
                    200,
                    &format!("<DeleteResult>{errors}</DeleteResult>"),
                ))
            }
            _ => Fate::Forward,
        }
    });
    let result = bucket.qo(&["submit", "--type", "t"]);
    result.assert(6);
    assert!(result.stderr.contains("s3:DeleteObject"), "{result:#?}");
    assert!(!result.stderr.contains("not safe"), "{result:#?}");
}

#[test]
fn a_misspelt_engine_is_corrected() {
    let workspace = Workspace::new();
    for store in ["s3://b?engin=slate", "sqlite:q.db?engin=slate"] {
        let output = workspace.bare(&["list", "--store", store]).output();
        let output = output.unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(
            errors.contains("engin") && errors.contains("engine"),
            "{errors}"
        );
        assert!(errors.replace("engin\"", "").contains("engine"), "{errors}");
    }
}

/// A store that has stopped to respond, and a server that is asked to stop.
///
/// A request that waits for the store keeps the server from ending by itself. It is recognised by a part of its path, because the server also sends
/// requests of its own.
fn a_second_signal_ends_a_server_without_its_store(engine: &str, waits_for: &'static str) {
    let hangs = Arc::new(AtomicBool::new(false));
    let hung = Arc::new(AtomicUsize::new(0));
    let bucket = FaultyBucket::new({
        let (hangs, hung) = (Arc::clone(&hangs), Arc::clone(&hung));
        move |request| {
            if hangs.load(Ordering::SeqCst) {
                if request.path.contains(waits_for) {
                    hung.fetch_add(1, Ordering::SeqCst);
                }
                Fate::Hang
            } else {
                Fate::Forward
            }
        }
    });
    let store = format!("s3://{}{engine}", bucket.bucket);
    let words = ["serve", "--listen", "127.0.0.1:0", "--store", &store];
    let mut server = bucket.start(&words);
    let address = serving_at(&mut server).unwrap();
    hangs.store(true, Ordering::SeqCst);
    let mut request = TcpStream::connect(&address).unwrap();
    let head = format!("GET /v1/tasks/{TASK} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    request.write_all(head.as_bytes()).unwrap();
    assert!(wait_until(LIMIT, || hung.load(Ordering::SeqCst) > 0));
    server.signal(Signal::TERM);
    // A signal that follows at once counts as the same one.
    std::thread::sleep(Duration::from_secs(1));
    server.signal(Signal::TERM);
    let ended = server.end();
    assert_eq!(ended.code, 130, "{ended:#?}");
}

#[test]
fn a_second_signal_ends_a_server_in_direct_mode() {
    // The server reads the task.
    a_second_signal_ends_a_server_without_its_store("", TASK);
}

#[test]
fn a_second_signal_ends_a_broker() {
    // A broker cannot close its queue without the store, so any request will do.
    a_second_signal_ends_a_server_without_its_store("?engine=slate", "");
}

#[test]
fn one_signal_that_arrives_twice_counts_once() {
    let workspace = Workspace::new();
    let id = workspace.submit("t");
    let mut worker = workspace.start(&["worker", "--exec", "t=touch started; sleep 1"]);
    let started = workspace.path().join("started");
    assert!(wait_until(LIMIT, || started.exists()));
    // `timeout` sends a signal to the process and then to its group.
    worker.signal(Signal::TERM);
    let lines = BufReader::new(worker.stdout()).lines();
    let mut lines = lines.map(Result::unwrap);
    assert!(lines.any(|line| line.contains("stopping")));
    worker.signal(Signal::TERM);
    assert!(lines.any(|line| line.contains("completed")));
    worker.end().assert(0);
    let task = workspace.qo(&["status", &id, "--json"]);
    assert!(task.stdout.contains("\"completed\""), "{task:#?}");
}
