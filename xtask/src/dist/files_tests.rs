//! Tests of the files in `packaging/` and `.github/workflows/` that no package build covers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::root::root;
use crate::steps::SHIPPED;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The value of `key = "value"` in a TOML file.
fn setting(path: &str, table: &str, key: &str) -> String {
    let file: toml::Table = read(path).parse().unwrap();
    let table = table
        .split('.')
        .fold(&toml::Value::Table(file), |value, name| &value[name])
        .clone();
    table[key].as_str().unwrap().to_owned()
}

#[test]
fn everything_that_the_dockerfile_refers_to_exists() {
    let dockerfile = read("packaging/docker/Dockerfile");
    let mut stages = Vec::new();
    for line in dockerfile.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words.as_slice() {
            ["FROM", _, "AS", stage] => stages.push(*stage),
            ["COPY", first, paths @ ..] if first.starts_with("--from=") => {
                let stage = first.trim_start_matches("--from=");
                assert!(stages.contains(&stage), "{line}");
                assert_eq!(paths.len(), 2, "{line}");
            }
            ["COPY", sources @ .., _] => {
                for source in sources {
                    assert!(root().join(source).exists(), "{line}");
                }
            }
            _ => {}
        }
        for word in words {
            if word.starts_with("packaging/") {
                assert!(root().join(word).exists(), "{line}");
            }
        }
    }
    assert_eq!(stages, ["build"]);
}

#[test]
fn the_image_runs_as_a_user_that_it_contains() {
    let dockerfile = read("packaging/docker/Dockerfile");
    let script = read("packaging/docker/rootfs.sh");
    let manifest = read("packaging/kubernetes/qo-broker.yaml");
    assert!(dockerfile.contains("\nUSER 65532:65532\n"));
    assert!(script.contains("qo:x:65532:65532:"));
    assert!(manifest.contains("runAsUser: 65532"));
}

#[test]
fn the_image_is_built_with_the_pinned_compiler() {
    let pinned = setting("rust-toolchain.toml", "toolchain", "channel");
    let dockerfile = read("packaging/docker/Dockerfile");
    assert!(dockerfile.contains(&format!("FROM rust:{pinned}-")));
    assert!(dockerfile.contains(&format!("RUSTUP_TOOLCHAIN={pinned}\n")));
    let oldest = setting("Cargo.toml", "workspace.package", "rust-version");
    assert!(pinned.starts_with(&oldest), "{pinned} {oldest}");
}

#[test]
fn the_image_has_the_features_of_the_packages() {
    let dockerfile = read("packaging/docker/Dockerfile");
    let build = dockerfile.lines().find(|line| line.contains("cargo build"));
    let build = build.unwrap();
    for word in [
        "--locked",
        "--profile dist",
        &format!("--features {SHIPPED}"),
    ] {
        assert!(build.contains(&format!(" {word} ")), "{build}");
    }
}

#[test]
fn the_manifest_is_valid_yaml_with_two_brokers() {
    let path = root().join("packaging/kubernetes/qo-broker.yaml");
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains('\t'));
    for document in text.split("\n---\n") {
        for key in ["apiVersion: ", "kind: ", "metadata:"] {
            let has_key = document.lines().any(|line| line.starts_with(key));
            assert!(has_key, "{key} is missing in\n{document}");
        }
    }
    // Exit code 3: Python has no YAML parser, and the checks above have to do.
    let script = r#"
import sys
try:
    import yaml
except ImportError:
    sys.exit(3)
documents = {(d["kind"], d["metadata"]["name"]): d for d in yaml.safe_load_all(open(sys.argv[1]))}
spec = documents["StatefulSet", "qo-broker"]["spec"]
assert spec["replicas"] == 2
labels = spec["template"]["metadata"]["labels"]
assert spec["selector"]["matchLabels"] == labels
container = spec["template"]["spec"]["containers"][0]
assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
port = container["ports"][0]
assert f"0.0.0.0:{port['containerPort']}" in container["args"]
assert ("Secret", container["envFrom"][0]["secretRef"]["name"]) in documents
for name in ["qo", spec["serviceName"]]:
    service = documents["Service", name]["spec"]
    assert service["selector"] == labels
    assert service["ports"][0]["targetPort"] == port["name"]
"#;
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(&path);
    let output = python.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{errors}");
}

#[test]
fn the_server_has_the_routes_of_the_probes() {
    let mut sources = String::new();
    append_sources(&root().join("crates/qo-server/src"), &mut sources);
    for route in ["\"/healthz\"", "\"/readyz\""] {
        assert!(sources.contains(route), "{route}");
    }
}

fn append_sources(directory: &Path, sources: &mut String) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            append_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

/// Runs a script of the Debian package. Programs that would change the system print their arguments instead.
fn run_script(script: &str, arguments: &[&str], user_exists: bool) -> String {
    let directory = tempfile::tempdir().unwrap();
    let stub = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    stub("adduser", "echo adduser \"$@\"");
    stub("systemctl", "echo systemctl \"$@\"");
    stub("getent", if user_exists { "exit 0" } else { "exit 2" });
    let output = Command::new("/bin/sh")
        .arg(root().join("packaging/debian").join(script))
        .args(arguments)
        .env("PATH", directory.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_installation_creates_the_user_of_the_units_once() {
    let created = run_script("postinst", &["configure", ""], false);
    let line = created.lines().next().unwrap();
    assert!(line.starts_with("adduser --system --group"), "{line}");
    let user = line.rsplit(' ').next().unwrap();
    for unit in ["qo-serve.service", "qo-worker@.service"] {
        let unit = read(&format!("packaging/systemd/{unit}"));
        assert!(unit.contains(&format!("\nUser={user}\n")));
    }
    let again = run_script("postinst", &["configure", "0.0.9"], true);
    assert!(!again.contains("adduser"), "{again}");
}

#[test]
fn the_scripts_of_the_debian_package_succeed_for_every_action() {
    for (script, arguments) in [
        ("postinst", ["abort-upgrade", "0.0.9"]),
        ("prerm", ["remove", ""]),
        ("prerm", ["upgrade", "0.0.9"]),
        ("postrm", ["remove", ""]),
        ("postrm", ["purge", ""]),
    ] {
        run_script(script, &arguments, true);
    }
}

#[test]
fn workflows_use_pinned_actions_and_existing_scripts() {
    for path in [".github/workflows/ci.yml", ".github/workflows/release.yml"] {
        let text = read(path);
        for line in text.lines() {
            let Some((_, action)) = line.split_once("uses: ") else {
                continue;
            };
            let revision = action.split(['@', ' ']).nth(1).unwrap_or_default();
            let is_commit =
                revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(is_commit && action.contains(" # v"), "{path}: {line}");
        }
        assert!(text.contains("run: .ci/run"), "{path}");
    }
    let mode = fs::metadata(root().join(".ci/run"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o111, 0o111);
}
