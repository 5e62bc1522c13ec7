//! The example `probe`, run as a user runs it: its output, streams and exit code.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use qo_store::probe::ProbeReport;
use qo_testkit::SeaweedFs;
use tokio::net::TcpListener;

/// The program. Not every way to run the tests builds the examples, so this builds it. If it is already built, that
/// takes no time.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut build = qo_testkit::cargo().unwrap();
        // Builds the whole workspace, so that dependencies keep the features that they were just built with.
        build.args(["build", "--workspace", "--example", "probe"]);
        build.args(["--quiet", "--message-format", "json"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let built = build.stderr(Stdio::inherit()).output().unwrap();
        assert!(built.status.success(), "{}", built.status);
        let messages = String::from_utf8(built.stdout).unwrap();
        let program = messages
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .filter(|message| message["target"]["name"] == "probe")
            .find_map(|message| message["executable"].as_str().map(PathBuf::from));
        program.unwrap()
    })
}

/// The result of a run.
struct ProgramOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs the program with exactly this environment.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> ProgramOutput {
    let output = Command::new(program())
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    ProgramOutput {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The error line of a failed run.
fn error_line(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let run = run(arguments, environment);
    assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    run.stderr.trim_end().to_owned()
}

#[test]
fn without_a_store_it_probes_the_default_file_and_prints_its_path_once() {
    let data = tempfile::tempdir().unwrap();
    let environment = [("XDG_DATA_HOME", data.path().to_str().unwrap())];
    let file = data.path().join("qo/qo.db").display().to_string();
    let table = run(&[], &environment);
    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""));
    assert_eq!(table.stdout.matches(&file).count(), 1, "{}", table.stdout);
    assert!(table.stdout.ends_with("This store can be trusted.\n"));
    assert!(!table.stdout.contains('\x1b'), "colours in a pipe");

    let json = run(&["--json"], &environment);
    assert_eq!(json.code, Some(0));
    assert_eq!(json.stderr.matches(&file).count(), 1, "{}", json.stderr);
    let report: ProbeReport = serde_json::from_str(&json.stdout).unwrap();
    assert!(report.trusted);
}

#[test]
fn a_store_that_breaks_conditions_is_rejected() {
    for (kind, reason) in [
        ("ignored-condition", "If-None-Match is ignored"),
        ("non-atomic-condition", "writers won a race"),
    ] {
        let refused = run(&["memory:", "--fault", kind], &[]);
        assert_eq!((refused.code, refused.stderr.as_str()), (Some(1), ""));
        assert!(refused.stdout.contains(reason), "{}", refused.stdout);
        assert!(
            refused
                .stdout
                .contains("Use a store with correct conditional")
        );
        let json = run(&["memory:", "--fault", kind, "--json"], &[]);
        assert_eq!((json.code, json.stderr.as_str()), (Some(1), ""));
        let report: ProbeReport = serde_json::from_str(&json.stdout).unwrap();
        assert!(!report.trusted);
    }
}

#[test]
fn command_line_errors_are_one_line() {
    assert_eq!(
        error_line(&["--jsn"], &[]),
        "probe: unknown option --jsn: see --help"
    );
    assert!(error_line(&["memory:", "--fault"], &[]).contains("ignored-condition"));
    assert!(error_line(&["memory:", "memory:"], &[]).contains("more than one store"));
    let help = run(&["--help"], &[]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    assert!(help.stdout.contains("Usage:"));
}

#[test]
fn an_unknown_scheme_is_one_line() {
    assert_eq!(
        error_line(&["redis://localhost"], &[]),
        "probe: unknown store scheme \"redis\": use one of memory:, sqlite:, s3:, gs:, az:, http:, https:, cluster:, mdns:"
    );
}

#[test]
fn an_unwritable_path_is_one_line() {
    let text = error_line(&["sqlite:/proc/qo/qo.db"], &[]);
    assert!(
        text.starts_with("probe: cannot write /proc/qo/qo.db: ")
            && text.ends_with("; choose a path in a writable directory"),
        "{text}"
    );
}

#[test]
fn a_missing_bucket_and_wrong_credentials_are_one_line() {
    let server = SeaweedFs::shared().unwrap();
    let environment = |secret| {
        [
            ("S3_ENDPOINT", server.endpoint()),
            ("AWS_ACCESS_KEY_ID", server.access_key()),
            ("AWS_SECRET_ACCESS_KEY", secret),
        ]
    };
    let text = error_line(&["s3://no-such-bucket"], &environment(server.secret_key()));
    assert!(
        text.ends_with(&format!(
            "there is no bucket \"no-such-bucket\": create it with 'aws s3 mb s3://no-such-bucket --endpoint-url {}', or name another one",
            server.endpoint()
        )),
        "{text}"
    );
    let bucket = server.unique_bucket("example").unwrap();
    let text = error_line(&[&format!("s3://{bucket}")], &environment("wrong"));
    assert!(
        text.contains("the store rejected the credentials (SignatureDoesNotMatch): check the environment variables"),
        "{text}"
    );
    let trusted = run(
        &[&format!("s3://{bucket}")],
        &environment(server.secret_key()),
    );
    assert_eq!(trusted.code, Some(0), "{}", trusted.stderr);
    assert!(!trusted.stdout.contains(server.secret_key()));
}

#[tokio::test]
async fn an_unreachable_endpoint_is_one_line() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let environment = [
        ("S3_ENDPOINT", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
    ];
    let text = error_line(&["s3://bucket"], &environment);
    assert!(text.contains(&format!("cannot reach {endpoint}")), "{text}");
    assert!(text.ends_with("check the endpoint and the network"));
}
