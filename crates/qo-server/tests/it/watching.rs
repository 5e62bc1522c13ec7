//! What a served broker tells of itself: its commits in the metrics.

use std::sync::Arc;
use std::time::Duration;

use qo::StateEngine;
use qo_engine::state::{JsonConfig, SlateConfig};
use qo_store::Store;
use qo_store::client::ClientConfig;
use qo_store::world::TokioWorld;
use qo_store::wrap::CountingStore;
use serde_json::json;

use crate::support::{Running, ask, config, memory, serve_engine};

fn json_on(store: &Store) -> StateEngine {
    StateEngine::json(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        TokioWorld::shared(),
        ClientConfig::default(),
        JsonConfig::local(),
    )
}

async fn slate_on(store: &Store) -> StateEngine {
    StateEngine::slate(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        TokioWorld::shared(),
        ClientConfig::default(),
        SlateConfig::default(),
    )
    .await
    .unwrap()
}

/// The number behind a name, with its labels.
fn sample(text: &str, name: &str) -> f64 {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("no {name} in\n{text}"));
    value.parse().unwrap()
}

async fn metrics(server: &Running) -> String {
    let response = server.send(ask("GET", "/metrics")).await;
    response.text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_tell_of_commits_and_of_tasks_by_all_three_labels() {
    for journal in ["json", "slate"] {
        let mut store = memory();
        let counting = Arc::new(CountingStore::new(Arc::clone(&store.objects)));
        store.objects = Arc::clone(&counting) as _;
        let engine = match journal {
            "json" => json_on(&store),
            _ => slate_on(&store).await,
        };
        let mut config = config();
        config.counts = Some(Arc::new(move || counting.counts()));
        config.stats_max_age = Duration::ZERO;
        let server = serve_engine(store, Arc::new(engine), config).await;
        let before = metrics(&server).await;
        let commits = |text: &str| sample(text, "qo_commit_seconds_count");
        assert!(commits(&before).abs() < 0.5, "nothing has happened yet");
        let bodies = json!([
            {"task_type": "mail", "queue": "q"},
            {"task_type": "mail", "queue": "q"},
            {"task_type": "mail", "queue": "q"},
            {"task_type": "bill", "queue": "q"},
        ]);
        let (status, _) = server.answer(ask("POST", "/v1/tasks").json(&bodies)).await;
        assert_eq!(status, 200);
        let wish = json!({"worker_id": "w", "queues": ["q"], "types": ["mail"], "max": 2});
        let (_, claimed) = server.answer(ask("POST", "/v1/claim").json(&wish)).await;
        let task = &claimed["tasks"][0];
        let path = format!("/v1/tasks/{}/complete", task["id"].as_str().unwrap());
        let done = json!({ "lease_id": task["lease_id"] });
        server.answer(ask("POST", path).json(&done)).await;

        let text = metrics(&server).await;
        for (status, task_type, count) in [
            ("pending", "mail", 1.0),
            ("running", "mail", 1.0),
            ("completed", "mail", 1.0),
            ("pending", "bill", 1.0),
        ] {
            let name = format!("qo_tasks{{queue=\"q\",type=\"{task_type}\",status=\"{status}\"}}");
            let found: f64 = sample(&text, &name);
            assert!((found - count).abs() < 0.1, "{journal}: {name} {found}");
        }
        // One write each for the submits, the claim and the completion.
        for (name, figure) in [
            ("qo_commit_seconds_count", 3.0),
            ("qo_commit_callers_sum", 3.0),
            ("qo_commit_tasks_sum", 4.0 + 2.0 + 1.0),
            ("qo_commit_tasks_bucket{le=\"2\"}", 2.0),
            ("qo_commit_tasks_bucket{le=\"5\"}", 3.0),
        ] {
            let found: f64 = sample(&text, name);
            assert!((found - figure).abs() < 0.1, "{journal}: {name} {found}");
        }
        for name in [
            "qo_commit_seconds_sum",
            "qo_submit_seconds_sum",
            "qo_claim_seconds_sum",
            "qo_http_request_seconds_sum",
            "qo_store_dollars_total",
            "qo_connections",
        ] {
            assert!(sample(&text, name) > 0.0, "{journal}: {name} in\n{text}");
        }
        for name in [
            "qo_task_wait_seconds_count",
            "qo_task_run_seconds_count",
            "qo_task_total_seconds_count",
            "qo_leader",
        ] {
            assert!(sample(&text, name) >= 1.0, "{journal}: {name} in\n{text}");
        }
        assert!(text.contains("qo_store_requests_total{prefix="), "{text}");
        server.engine.close().await;
    }
}
