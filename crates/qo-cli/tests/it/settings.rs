//! Selection of the store, and errors for unusable stores.

use std::process::Command;

use crate::workspace::Workspace;

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
fn the_default_store_is_a_file_in_the_data_directory() {
    let workspace = Workspace::new();
    let (code, id, stderr) = text(&mut workspace.bare(&["submit", "--type", "t"]));
    assert_eq!(code, 0, "{stderr}");
    let (_, listed, _) = text(&mut workspace.bare(&["list"]));
    assert!(listed.contains(id.trim()), "{listed}");
    let shown = config(&mut workspace.bare(&["config", "--json"]));
    let description = shown["store"]["description"].as_str().unwrap();
    assert!(description.ends_with("qo/qo.db"), "{description}");
    assert_eq!(shown["store"]["origin"], "default");
}

#[test]
fn flags_override_environment_overrides_profile_overrides_file() {
    let workspace = Workspace::new();
    workspace.file(
        "qo.toml",
        "store = 'sqlite:file.db'\n[profiles.dev]\nstore = 'sqlite:dev.db'\n",
    );
    std::fs::create_dir_all(workspace.path().join("below/deeper")).unwrap();
    let store = |words: &[&str], variables: &[(&str, &str)]| {
        let words: Vec<&str> = words.iter().copied().chain(["config", "--json"]).collect();
        let mut command = workspace.bare(&words);
        command.current_dir(workspace.path().join("below/deeper"));
        command.envs(variables.iter().copied());
        config(&mut command)["store"]["description"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    // A relative path is resolved against the directory of the settings file.
    let in_file_directory = |name: &str| {
        let directory = workspace.path().canonicalize().unwrap();
        format!("sqlite:{}", directory.join(name).display())
    };
    assert_eq!(store(&[], &[]), in_file_directory("file.db"));
    assert_eq!(
        store(&["--profile", "dev"], &[]),
        in_file_directory("dev.db")
    );
    assert_eq!(
        store(&[], &[("QO_PROFILE", "dev")]),
        in_file_directory("dev.db")
    );
    let variable = [("QO_PROFILE", "dev"), ("QO_STORE", "memory:env")];
    assert_eq!(store(&[], &variable), "memory:env");
    assert_eq!(store(&["--store", "memory:flag"], &variable), "memory:flag");
    let (code, _, stderr) = text(&mut workspace.bare(&["--profile", "prod", "list"]));
    assert_eq!(code, 2);
    assert!(
        stderr.contains("\"prod\"") && stderr.contains("dev"),
        "{stderr}"
    );
}

#[test]
fn an_unknown_key_in_the_file_is_an_error() {
    let workspace = Workspace::new();
    workspace.file("other.toml", "stroe = 'memory:'\n");
    let mut command = workspace.bare(&["list"]);
    command.env("QO_CONFIG", "other.toml");
    let (code, _, stderr) = text(&mut command);
    assert_eq!(code, 2);
    for part in ["\"stroe\"", "other.toml", "did you mean \"store\"?"] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn the_exit_code_tells_why_a_store_is_unusable() {
    let workspace = Workspace::new();
    let keys = [
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7MDENG"),
        // Nothing listens on the port of the discard protocol.
        ("S3_ENDPOINT", "http://127.0.0.1:9"),
    ];
    let mut unreachable = workspace.bare(&["--store", "s3://bucket-one", "list", "--json"]);
    unreachable.envs(keys);
    let (code, _, stderr) = text(&mut unreachable);
    assert_eq!(code, 5, "{stderr}");
    assert!(
        stderr.contains("bucket-one") && stderr.contains("unavailable"),
        "{stderr}"
    );
    let mut incomplete = workspace.bare(&["--store", "s3://bucket-one", "list"]);
    incomplete.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE");
    let (code, _, stderr) = text(&mut incomplete);
    assert_eq!(code, 6, "{stderr}");
    assert!(stderr.contains("AWS_SECRET_ACCESS_KEY"), "{stderr}");
    assert!(!stderr.contains("AKIDEXAMPLE"), "{stderr}");
    for url in ["nonsense", "ftp://bucket", "s3://", "memory:?engine=raft"] {
        let (code, _, stderr) = text(&mut workspace.bare(&["--store", url, "list"]));
        assert_eq!(code, 2, "{url}: {stderr}");
    }
    let mut invalid = workspace.command(&["list"]);
    invalid.env("QO_INDEX_MODE", "sideways");
    let (code, _, stderr) = text(&mut invalid);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("QO_INDEX_MODE"), "{stderr}");
}
