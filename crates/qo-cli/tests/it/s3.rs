//! The command on a real S3 server, and its errors for bad buckets and credentials.

use std::process::Command;

use qo_testkit::SeaweedFs;

use crate::workspace::Workspace;

struct S3Fixture {
    workspace: Workspace,
    server: &'static SeaweedFs,
}

impl S3Fixture {
    fn new() -> Self {
        Self {
            workspace: Workspace::new(),
            server: SeaweedFs::shared().unwrap(),
        }
    }

    fn command(&self, bucket: &str, words: &[&str]) -> Command {
        let mut command = self.workspace.bare(words);
        command
            .env("QO_STORE", format!("s3://{bucket}"))
            .env("S3_ENDPOINT", self.server.endpoint())
            .env("AWS_ACCESS_KEY_ID", self.server.access_key())
            .env("AWS_SECRET_ACCESS_KEY", self.server.secret_key());
        command
    }
}

fn run(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn tasks_are_stored_in_a_bucket_and_requests_are_logged() {
    let server = S3Fixture::new();
    let bucket = server.server.unique_bucket("cli").unwrap();
    let (code, id, stderr) = run(server.command(&bucket, &["submit", "--type", "t"]));
    assert_eq!(code, Some(0), "{stderr}");
    let id = id.trim();
    let (code, stdout, stderr) = run(server.command(&bucket, &["-v", "status", id]));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("pending"), "{stdout}");
    let line = stderr.lines().find(|line| line.contains(id)).unwrap();
    assert!(
        line.contains("GET") && line.contains(" 200 ") && line.ends_with(" ms"),
        "{line}"
    );
    assert!(!stderr.contains(server.server.secret_key()), "{stderr}");
}

#[test]
fn a_missing_bucket_is_an_error_that_says_how_to_create_it() {
    let server = S3Fixture::new();
    let (code, _, stderr) = run(server.command("no-such-bucket-here", &["list"]));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("no-such-bucket-here") && stderr.contains("create it with"),
        "{stderr}"
    );
}

#[test]
fn rejected_credentials_are_reported_by_source_and_never_shown() {
    let server = S3Fixture::new();
    let bucket = server.server.unique_bucket("cli").unwrap();
    for words in [&["list"][..], &["doctor"], &["init"]] {
        let mut command = server.command(&bucket, words);
        command.env("AWS_SECRET_ACCESS_KEY", "not-the-secret-of-this-server");
        let (code, _, stderr) = run(command);
        assert_eq!(code, Some(6), "{words:?}: {stderr}");
        assert!(stderr.contains("AWS_ACCESS_KEY_ID"), "{stderr}");
        assert!(!stderr.contains("not-the-secret"), "{stderr}");
    }
}
