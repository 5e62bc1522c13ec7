//! The OpenAPI document against a running server.

use std::collections::BTreeSet;

use qo_server::tokens::Scope;
use qo_server::{Auth, documented};
use serde_json::{Value, json};

use crate::access::{filled, token};
use crate::support::{api, config, serve};

#[tokio::test]
async fn every_documented_route_is_served_and_no_other() {
    let server = serve(config()).await;
    let mut paths: BTreeSet<String> = BTreeSet::new();
    for (method, path) in documented() {
        paths.insert(path.clone());
        if path == "/v1/events" {
            continue;
        }
        let (status, answer) = server.reply(api(&method, filled(&path))).await;
        assert_ne!(answer["code"], "no_route", "{method} {path}");
        assert_ne!(status, 405, "{method} {path}");
    }
    let methods = ["GET", "POST", "PUT", "DELETE", "PATCH"];
    for path in paths {
        for method in methods {
            let known = documented().contains(&(method.to_owned(), path.clone()));
            if !known {
                let request = api(method, filled(&path));
                server.refused(request, 405, "no_method").await;
            }
        }
    }
}

#[tokio::test]
async fn the_page_loads_nothing_from_other_sites() {
    let server = serve(config()).await;
    for path in ["/docs", "/docs/reference.js", "/docs/reference.css"] {
        let response = server.send(api("GET", path)).await;
        assert_eq!(response.status(), 200);
        let policy = response.headers()["content-security-policy"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        let text = response.text().await.unwrap();
        assert!(
            !text.contains("http://") && !text.contains("https://"),
            "{path}"
        );
        assert!(
            !text.contains("innerHTML") && !text.contains("onclick"),
            "{path}"
        );
    }
    let (_, page) = server.reply(api("GET", "/docs")).await;
    let page = page.as_str().unwrap().to_owned();
    assert!(
        !page.contains("<script>") && !page.contains("<style"),
        "the page has inline code"
    );
}

/// A task on the wire has exactly the fields of the document.
#[tokio::test]
async fn the_document_describes_every_field_of_a_task() {
    let server = serve(config()).await;
    let body = json!({
        "task_type": "t", "input": 1, "tags": ["a"], "idempotency_key": "k", "idempotency_scope": "global",
        "idempotency_window_ms": 1000, "expires_in_ms": 100_000,
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    });
    server.reply(api("POST", "/v1/tasks").json(&body)).await;
    let request = json!({"worker_id": "w", "wait_ms": 20_000});
    let (_, answer) = server.reply(api("POST", "/v1/claim").json(&request)).await;
    let task = answer["tasks"][0].clone();
    let path = format!("/v1/tasks/{}", task["id"].as_str().unwrap());
    let progress = json!({"lease_id": task["lease_id"], "percent": 1});
    let (_, running) = server
        .reply(api("POST", format!("{path}/progress")).json(&progress))
        .await;
    let complete = json!({"lease_id": task["lease_id"], "output": 2});
    let (_, done) = server
        .reply(api("POST", format!("{path}/complete")).json(&complete))
        .await;

    let document = serde_json::to_value(qo_server::document()).unwrap();
    let schema = &document["components"]["schemas"]["Task"];
    let names = |value: &Value| -> BTreeSet<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    let described = names(&schema["properties"]);
    for task in [&running, &done] {
        let unknown: Vec<_> = names(task).difference(&described).cloned().collect();
        assert!(unknown.is_empty(), "not described: {unknown:?}");
        for required in schema["required"].as_array().unwrap() {
            assert!(task.get(required.as_str().unwrap()).is_some(), "{required}");
        }
    }
}

/// Which checks are off for which routes.
const SCHEMATHESIS_SETTINGS: &str = include_str!("schemathesis/settings.toml");
/// The refusals of valid requests that are right.
const SCHEMATHESIS_HOOKS: &str = include_str!("schemathesis/hooks.py");

/// An error of Python's own parser.
const PARSER_FAULT: &str = "AST constructor recursion depth mismatch";

/// Schemathesis generates valid and invalid requests from the document, and checks the responses against it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemathesis_finds_nothing() {
    let admin = token(&[Scope::Admin]);
    let mut config = config();
    config.auth = Auth::given(vec![admin.record.clone()]);
    config.limits.wait_max = std::time::Duration::from_millis(20);
    let server = serve(config).await;
    let url = server.url.clone();
    let token = admin.reveal().to_owned();
    let output = tokio::task::spawn_blocking(move || {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("schemathesis.toml", SCHEMATHESIS_SETTINGS),
            ("hooks.py", SCHEMATHESIS_HOOKS),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let seed = std::env::var("QO_SCHEMATHESIS_SEED").unwrap_or_else(|_| "17".to_owned());
        let mut command = qo_testkit::schemathesis().unwrap();
        command
            .args(["run", &format!("{url}/v1/openapi.json"), "--url", &url])
            .args(["--header", &format!("Authorization: Bearer {token}")])
            // An event stream does not end by itself.
            .args(["--exclude-path", "/v1/events"])
            .args([
                "--phases",
                "examples,coverage,fuzzing",
                "--max-examples",
                "15",
                "--seed",
                &seed,
            ])
            .args([
                "--no-color",
                "--suppress-health-check",
                "all",
                "--request-timeout",
                "30",
                "--workers",
                // Python 3.11 sometimes fails to parse source code in one thread while another one does the same.
                "1",
            ])
            .current_dir(folder.path());
        let mut output = command.output().unwrap();
        for _ in 0..2 {
            // That says nothing about the API.
            if String::from_utf8_lossy(&output.stdout).contains(PARSER_FAULT) {
                output = command.output().unwrap();
            }
        }
        output
    })
    .await
    .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
