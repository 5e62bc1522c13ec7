//! Which store is used, and what is said where it cannot be.

use std::process::Command;

use crate::place::Place;

fn text(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap_or(-1),
        text(output.stdout),
        text(output.stderr),
    )
}

fn config(command: &mut Command) -> serde_json::Value {
    let (code, stdout, stderr) = text(command);
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn with_nothing_configured_it_works_on_a_file_in_the_data_directory() {
    let place = Place::new();
    let (code, id, stderr) = text(&mut place.bare(&["submit", "--type", "t"]));
    assert_eq!(code, 0, "{stderr}");
    let (_, listed, _) = text(&mut place.bare(&["list"]));
    assert!(listed.contains(id.trim()), "{listed}");
    let shown = config(&mut place.bare(&["config", "--json"]));
    let description = shown["store"]["description"].as_str().unwrap();
    assert!(description.ends_with("qo/qo.db"), "{description}");
    assert_eq!(shown["store"]["origin"], "default");
}

#[test]
fn flag_above_environment_above_profile_above_file() {
    let place = Place::new();
    place.file(
        "qo.toml",
        "store = 'sqlite:file.db'\n[profiles.dev]\nstore = 'sqlite:dev.db'\n",
    );
    std::fs::create_dir_all(place.path().join("below/deeper")).unwrap();
    let store = |words: &[&str], variables: &[(&str, &str)]| {
        let words: Vec<&str> = words.iter().copied().chain(["config", "--json"]).collect();
        let mut command = place.bare(&words);
        command.current_dir(place.path().join("below/deeper"));
        command.envs(variables.iter().copied());
        config(&mut command)["store"]["description"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    // A relative path in the file begins where the file is.
    let beside = |name: &str| {
        let directory = place.path().canonicalize().unwrap();
        format!("sqlite:{}", directory.join(name).display())
    };
    assert_eq!(store(&[], &[]), beside("file.db"));
    assert_eq!(store(&["--profile", "dev"], &[]), beside("dev.db"));
    assert_eq!(store(&[], &[("QO_PROFILE", "dev")]), beside("dev.db"));
    let variable = [("QO_PROFILE", "dev"), ("QO_STORE", "memory:env")];
    assert_eq!(store(&[], &variable), "memory:env");
    assert_eq!(store(&["--store", "memory:flag"], &variable), "memory:flag");
    let (code, _, stderr) = text(&mut place.bare(&["--profile", "prod", "list"]));
    assert_eq!(code, 2);
    assert!(
        stderr.contains("\"prod\"") && stderr.contains("dev"),
        "{stderr}"
    );
}

#[test]
fn a_mistake_in_the_file_is_named() {
    let place = Place::new();
    place.file("other.toml", "stroe = 'memory:'\n");
    let mut command = place.bare(&["list"]);
    command.env("QO_CONFIG", "other.toml");
    let (code, _, stderr) = text(&mut command);
    assert_eq!(code, 2);
    for part in ["\"stroe\"", "other.toml", "did you mean \"store\"?"] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn a_store_that_cannot_be_used_is_told_apart_by_the_exit_code() {
    let place = Place::new();
    let keys = [
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7MDENG"),
        // Nothing listens on the port of the discard protocol.
        ("S3_ENDPOINT", "http://127.0.0.1:9"),
    ];
    let mut unreachable = place.bare(&["--store", "s3://bucket-one", "list", "--json"]);
    unreachable.envs(keys);
    let (code, _, stderr) = text(&mut unreachable);
    assert_eq!(code, 5, "{stderr}");
    assert!(
        stderr.contains("bucket-one") && stderr.contains("unavailable"),
        "{stderr}"
    );
    let mut half = place.bare(&["--store", "s3://bucket-one", "list"]);
    half.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE");
    let (code, _, stderr) = text(&mut half);
    assert_eq!(code, 6, "{stderr}");
    assert!(stderr.contains("AWS_SECRET_ACCESS_KEY"), "{stderr}");
    assert!(!stderr.contains("AKIDEXAMPLE"), "{stderr}");
    for url in ["nonsense", "ftp://bucket", "s3://", "memory:?engine=raft"] {
        let (code, _, stderr) = text(&mut place.bare(&["--store", url, "list"]));
        assert_eq!(code, 2, "{url}: {stderr}");
    }
    let mut nonsense = place.command(&["list"]);
    nonsense.env("QO_INDEX_MODE", "sideways");
    let (code, _, stderr) = text(&mut nonsense);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("QO_INDEX_MODE"), "{stderr}");
}
