//! Encryption through the command: `qo key`, the settings, workers with and without the key, and what is in the store.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::schema;
use crate::workspace::{RunningCommand, Workspace};

/// A text that must not be found in the store.
const SECRET: &str = "correct horse battery staple";

/// The command's output as text.
fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap_or(-1);
    (code, text(output.stdout), text(output.stderr))
}

/// Runs the command with keys of a file, and expects success.
fn with_keys(workspace: &Workspace, file: &str, words: &[&str]) -> String {
    let mut command = workspace.command(words);
    let (code, stdout, stderr) = run(command.env("QO_ENCRYPTION_KEY_FILE", file));
    assert_eq!(code, 0, "{words:?}: {stderr}");
    stdout
}

fn workspace_with_key() -> Workspace {
    let workspace = Workspace::new();
    let words = ["key", "generate", "--id", "k1", "--out", "qo.keys"];
    workspace.qo(&words).assert(0);
    workspace
}

/// Whether any file of the store contains the text.
fn store_contains(workspace: &Workspace, text: &str) -> bool {
    let files = std::fs::read_dir(workspace.path()).unwrap();
    let mut stored = files.filter_map(|file| {
        let path = file.unwrap().path();
        let name = path.file_name()?.to_str()?.to_owned();
        name.starts_with("queue.db")
            .then(|| std::fs::read(path).unwrap())
    });
    let mut seen = 0;
    let found = stored.by_ref().any(|bytes| {
        seen += 1;
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    });
    assert!(seen > 0, "there is no store");
    found
}

#[test]
fn nothing_of_the_plaintext_is_in_the_file_and_commands_with_the_key_read_it() {
    let workspace = workspace_with_key();
    let keyed = |words: &[&str]| with_keys(&workspace, "qo.keys", words);
    let input = format!("\"{SECRET}\"");
    let good = keyed(&["submit", "--type", "shout", "--input", &input]);
    let good = good.trim();
    let bad = keyed(&[
        "submit",
        "--type",
        "fail",
        "--input",
        &input,
        "--retries",
        "0",
    ]);
    let bad = bad.trim();
    keyed(&[
        "worker",
        "--exec",
        "shout=cat",
        "--exec",
        "fail=cat >&2; exit 1",
        "--max-tasks",
        "2",
    ]);
    assert!(!store_contains(&workspace, "horse"));
    assert!(store_contains(&workspace, "qo_encrypted"));

    let shown: Value = serde_json::from_str(&keyed(&["status", good, "--json"])).unwrap();
    assert_eq!(shown["status"], "completed");
    assert_eq!(
        (&shown["input"], &shown["output"]),
        (&SECRET.into(), &SECRET.into())
    );
    assert_eq!(keyed(&["wait", good]).trim(), input);
    for words in [&["status", bad][..], &["history", bad], &["list"]] {
        let shown = keyed(words);
        assert!(shown.contains(SECRET), "{words:?}: {shown}");
    }

    // Without the key, every command says that the task is encrypted, and with which key.
    for words in [
        &["status", good][..],
        &["status", bad],
        &["history", bad],
        &["list"],
    ] {
        let result = workspace.qo(words);
        let shown = &result.assert(0).stdout;
        assert!(
            shown.contains("encrypted with key k1"),
            "{words:?}: {shown}"
        );
        assert!(!shown.contains("qo-encrypted:"), "{words:?}: {shown}");
    }
    let waited = workspace.qo(&["--json", "wait", good]);
    assert_eq!(waited.assert(0).json("task")["output"]["key"], "k1");
    let error = workspace.qo(&["wait", good]);
    assert!(
        error.assert(6).stderr.contains("encrypted with key k1"),
        "{error:?}"
    );
    // The store has accepted the credentials, if it needs any.
    assert!(error.stderr.contains("qo key list"), "{error:?}");
    assert!(!error.stderr.contains("credentials"), "{error:?}");
    let failed = workspace.qo(&["wait", bad]);
    assert!(
        failed.assert(8).stderr.contains("encrypted with key k1"),
        "{failed:?}"
    );
}

#[test]
fn a_large_input_is_encrypted_and_shown_in_full() {
    let workspace = workspace_with_key();
    let text = SECRET.repeat(5_000);
    workspace.file("input.json", &format!("\"{text}\""));
    let words = ["submit", "--type", "t", "--input", "@input.json"];
    let id = with_keys(&workspace, "qo.keys", &words);
    let shown = with_keys(
        &workspace,
        "qo.keys",
        &["status", id.trim(), "--full", "--json"],
    );
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["input"], text);
    assert!(!store_contains(&workspace, "horse"));
    let sealed = workspace.qo(&["status", id.trim(), "--full"]);
    assert!(sealed.assert(0).stdout.contains("encrypted with key k1"));
    let sealed = workspace.qo(&["--json", "status", id.trim(), "--full"]);
    assert_eq!(sealed.assert(0).json("task")["input"]["key"], "k1");
}

#[test]
fn a_worker_without_the_key_says_so_and_another_one_completes_the_task() {
    let workspace = workspace_with_key();
    let id = with_keys(
        &workspace,
        "qo.keys",
        &["submit", "--type", "t", "--input", "7"],
    );
    let worker = ["worker", "--exec", "t=cat", "--max-tasks", "1"];
    let result = workspace.qo(&worker);
    let shown = format!("{}{}", result.assert(0).stdout, result.stderr);
    assert!(
        shown.contains("snoozed") && shown.contains("encrypted with key k1"),
        "{shown}"
    );
    let task = workspace.qo(&["--json", "status", id.trim()]);
    let task = task.assert(0).json("task");
    assert_eq!(
        (&task["status"], &task["retry_count"]),
        (&"pending".into(), &0.into())
    );
    // Refused if it is due by now.
    workspace.qo(&["run-now", id.trim()]);
    with_keys(&workspace, "qo.keys", &worker);
    assert_eq!(
        with_keys(&workspace, "qo.keys", &["wait", id.trim()]).trim(),
        "7"
    );
}

#[test]
fn another_key_of_the_same_name_is_a_clear_error() {
    let workspace = workspace_with_key();
    let id = with_keys(
        &workspace,
        "qo.keys",
        &["submit", "--type", "t", "--input", "7"],
    );
    let other = workspace.qo(&["key", "generate", "--id", "k1"]);
    workspace.file("other.keys", &other.assert(0).stdout);
    let shown = with_keys(&workspace, "other.keys", &["status", id.trim()]);
    assert!(shown.contains("cannot be decrypted with key k1"), "{shown}");
    let worker = ["worker", "--exec", "t=cat", "--max-tasks", "1"];
    with_keys(&workspace, "other.keys", &worker);
    let listed = workspace.qo(&["list"]);
    assert!(
        listed.assert(0).stdout.contains("cannot be decrypted"),
        "{listed:?}"
    );
    with_keys(&workspace, "qo.keys", &worker);
    assert_eq!(
        with_keys(&workspace, "qo.keys", &["wait", id.trim()]).trim(),
        "7"
    );
}

#[test]
fn a_server_without_the_key_serves_clients_with_it() {
    for engine in ["", "?engine=json", "?engine=slate"] {
        let workspace = workspace_with_key();
        let store = format!("{}{engine}", workspace.store());
        let mut command = workspace.serve(&store);
        let mut server = RunningCommand::spawn(command.stdout(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(server.stdout())
            .read_line(&mut line)
            .unwrap();
        let announced: Value = serde_json::from_str(&line).unwrap();
        let url = announced["url"].as_str().unwrap();
        let client = |keys: bool, words: &[&str]| {
            let mut command = workspace.bare(words);
            command.env("QO_STORE", url);
            if keys {
                command.env("QO_ENCRYPTION_KEY_FILE", "qo.keys");
            }
            let (code, stdout, stderr) = run(&mut command);
            assert_eq!(code, 0, "{words:?}: {stderr}");
            stdout
        };
        let input = format!("\"{SECRET}\"");
        let words = [
            "submit",
            "--type",
            "t",
            "--input",
            &input,
            "--idempotency-key",
            "once",
        ];
        let id = client(true, &words);
        assert_eq!(client(true, &words), id, "{engine}");
        client(true, &["worker", "--exec", "t=cat", "--max-tasks", "1"]);
        assert_eq!(client(true, &["wait", id.trim()]).trim(), input, "{engine}");
        let seen = client(false, &["status", id.trim(), "--json"]);
        assert!(
            !seen.contains("horse") && seen.contains("qo_encrypted"),
            "{seen}"
        );
    }
}

#[test]
fn keys_come_from_a_file_the_environment_a_command_or_the_settings_file() {
    let workspace = workspace_with_key();
    let text = std::fs::read_to_string(workspace.path().join("qo.keys")).unwrap();
    let key = text.lines().last().unwrap().to_owned();
    let ids = |command: &mut Command| {
        let (code, stdout, stderr) = run(command);
        assert_eq!(code, 0, "{stderr}");
        assert!(!format!("{stdout}{stderr}").contains(key.split_once(':').unwrap().1));
        let value: Value = serde_json::from_str(stdout.trim()).unwrap();
        schema::check("key", &value);
        (
            value["id"].clone(),
            value["origin"].as_str().unwrap().to_owned(),
        )
    };
    let list = ["--json", "key", "list"];
    let (id, origin) = ids(workspace.bare(&list).env("QO_ENCRYPTION_KEYS", &key));
    assert_eq!(id, "k1");
    assert!(origin.contains("QO_ENCRYPTION_KEYS"), "{origin}");
    ids(workspace
        .bare(&list)
        .env("QO_ENCRYPTION_KEY_COMMAND", "cat qo.keys"));
    let flag = [&list[..], &["--encryption-key-file", "qo.keys"]].concat();
    assert!(
        ids(&mut workspace.bare(&flag))
            .1
            .contains("--encryption-key-file")
    );
    workspace.file(
        "qo.toml",
        "encryption_key_file = 'qo.keys'\n[profiles.kms]\nencryption_key_command = 'cat qo.keys'\n",
    );
    assert!(ids(&mut workspace.bare(&list)).1.contains("qo.toml"));
    let profile = [&list[..], &["--profile", "kms"]].concat();
    assert!(ids(&mut workspace.bare(&profile)).1.contains("profile kms"));
    let config = workspace.qo(&["config"]);
    assert!(config.assert(0).stdout.contains("key file"), "{config:?}");
}

#[test]
fn bad_keys_are_clear_errors_and_write_nothing() {
    let workspace = workspace_with_key();
    let submit = ["submit", "--type", "t", "--input", "\"s3cr3t\""];
    for (name, value, expected, code) in [
        ("QO_ENCRYPTION_KEYS", "k1:tooshort", "32 bytes", 2),
        ("QO_ENCRYPTION_KEYS", "# none", "there is no key", 2),
        ("QO_ENCRYPTION_KEY_FILE", "missing.keys", "missing.keys", 2),
        (
            "QO_ENCRYPTION_KEY_COMMAND",
            "echo oops >&2; exit 3",
            "exit status: 3",
            6,
        ),
        ("QO_ENCRYPTION_KEY_COMMAND", "true", "there is no key", 2),
    ] {
        let mut command = workspace.command(&submit);
        let (found, _, stderr) = run(command.env(name, value));
        assert_eq!(found, code, "{name}={value}: {stderr}");
        assert!(stderr.contains(expected), "{name}={value}: {stderr}");
        assert!(!stderr.contains("tooshort"), "{stderr}");
    }
    assert!(
        !workspace.path().join("queue.db").exists(),
        "nothing was opened"
    );
    let again = workspace.qo(&["key", "generate", "--out", "qo.keys"]);
    assert!(
        again.assert(2).stderr.contains("never overwritten"),
        "{again:?}"
    );
    let bad_name = workspace.qo(&["key", "generate", "--id", "a b"]);
    assert!(
        bad_name.assert(2).stderr.contains("1 to 32 letters"),
        "{bad_name:?}"
    );
    workspace.qo(&["key", "list"]).assert(3);
    let generated = workspace.qo(&["--json", "key", "generate"]);
    let generated = generated.assert(0).json("key");
    assert!(
        generated["key"]
            .as_str()
            .unwrap()
            .starts_with(generated["id"].as_str().unwrap())
    );
}

#[cfg(unix)]
#[test]
fn a_key_file_is_readable_only_for_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let workspace = workspace_with_key();
    let file = std::fs::metadata(workspace.path().join("qo.keys")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
}

#[test]
fn tasks_with_blobs_are_refused() {
    let workspace = workspace_with_key();
    let keys = ["--encryption-key-file", "qo.keys"];
    let worker = workspace.qo(&[&keys[..], &["worker", "--wasi"]].concat());
    let refused = &worker
        .assert(if cfg!(feature = "wasi") {
            2
        } else {
            worker.code
        })
        .stderr;
    assert!(!refused.is_empty());
    workspace.file("p.wasm", "\0asm\u{1}\0\0\0");
    let submit = workspace.qo(&[&keys[..], &["submit", "--wasi", "p.wasm"]].concat());
    assert!(
        submit.assert(9).stderr.contains("refers to blobs"),
        "{submit:?}"
    );
}

#[test]
fn the_input_of_a_schedule_is_encrypted_and_a_command_without_the_key_can_trigger_it() {
    let workspace = workspace_with_key();
    let keyed = |words: &[&str]| with_keys(&workspace, "qo.keys", words);
    let input = format!("\"{SECRET}\"");
    let add = [
        "schedule", "add", "nightly", "--every", "1h", "--type", "shout", "--input", &input,
    ];
    keyed(&add);
    // The same again is the same definition.
    keyed(&add);
    assert!(keyed(&["schedule", "show", "nightly"]).contains(SECRET));
    let shown = workspace.qo(&["schedule", "show", "nightly"]);
    let shown = &shown.assert(0).stdout;
    assert!(shown.contains("encrypted with key k1"), "{shown}");
    let id = workspace.qo(&["schedule", "trigger", "nightly"]);
    let id = id.assert(0).stdout.trim().to_owned();
    keyed(&["worker", "--exec", "shout=cat", "--max-tasks", "1"]);
    assert_eq!(keyed(&["wait", &id]).trim(), input);
    assert!(!store_contains(&workspace, "horse"));
}
