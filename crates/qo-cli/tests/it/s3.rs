//! The command on a real S3 server: what it does there, and what it says when something is wrong with the bucket or the credentials.

use std::process::Command;

use qo_testkit::SeaweedFs;

use crate::place::Place;

struct Server {
    place: Place,
    server: &'static SeaweedFs,
}

impl Server {
    fn new() -> Self {
        Self {
            place: Place::new(),
            server: SeaweedFs::shared().unwrap(),
        }
    }

    fn command(&self, bucket: &str, words: &[&str]) -> Command {
        let mut command = self.place.bare(words);
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
fn tasks_go_through_a_bucket_and_requests_are_shown() {
    let server = Server::new();
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
fn a_missing_bucket_is_named_with_how_to_create_it() {
    let server = Server::new();
    let (code, _, stderr) = run(server.command("no-such-bucket-here", &["list"]));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("no-such-bucket-here") && stderr.contains("create it with"),
        "{stderr}"
    );
}

#[test]
fn refused_credentials_are_named_by_their_source_and_never_shown() {
    let server = Server::new();
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
