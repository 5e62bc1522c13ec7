//! Webhooks over HTTP.

use std::sync::Arc;

use qo::Queue;
use qo::webhook::Webhook;
use qo_fixtures::client_of;
use qo_remote::{RemoteConfig, RemoteEngine};
use qo_server::Auth;
use qo_server::tokens::{Scope, TokenStore};
use qo_store::runtime::TokioRuntime;
use serde_json::{Value, json};

use crate::support::{api, config, memory, serve, serve_store};

#[tokio::test]
async fn a_webhook_is_set_shown_without_its_secret_tested_and_removed() {
    let server = serve(config()).await;
    let put = |body: Value| api("PUT", "/v1/webhooks/billing").json(&body);
    let url = "https://example.org/hook";
    let (status, created) = server.reply(put(json!({ "url": url }))).await;
    assert_eq!(status, 200, "{created}");
    assert_eq!(created["events"], json!(["completed", "failed"]));
    let secret = created["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("whsec_"), "{secret}");
    // A change keeps the secret, and nothing shows it.
    let body = json!({ "url": url, "events": ["failed"], "queues": ["mail"] });
    let (_, changed) = server.reply(put(body)).await;
    assert_eq!(changed["secret"], Value::Null, "{changed}");
    assert_eq!(changed["created_at"], created["created_at"]);
    let (_, one) = server.reply(api("GET", "/v1/webhooks/billing")).await;
    assert_eq!(one, changed);
    let (_, all) = server.reply(api("GET", "/v1/webhooks")).await;
    assert_eq!(all, json!({ "webhooks": [one] }));
    let (_, stored) = server.reply(api("GET", "/v1/settings/webhooks")).await;
    assert_eq!(stored["settings"][0]["body"]["url"], url);
    let all = format!("{changed}{one}{all}{stored}");
    assert!(!all.contains("whsec_"), "{all}");
    let queue = Queue::new(Arc::clone(&server.engine), TokioRuntime::shared());
    let name = "billing".parse().unwrap();
    let target = queue.webhooks().target(&name).await.unwrap().unwrap();
    assert!(target.key.is_some());

    let task = json!({ "task_type": "t", "queue": "mail" });
    let (_, task) = server.reply(api("POST", "/v1/tasks").json(&task)).await;
    let (_, test) = server.reply(api("POST", "/v1/webhooks/billing/test")).await;
    let delivery = test["delivery"].as_str().unwrap();
    let (_, delivery) = server
        .reply(api("GET", format!("/v1/tasks/{delivery}")))
        .await;
    assert_eq!(
        (&delivery["queue"], &delivery["task_type"]),
        (&json!("webhooks"), &json!("qo.webhook"))
    );
    assert_eq!(delivery["input"]["body"]["type"], "webhook.test");
    assert!(!delivery.to_string().contains("whsec_"));
    // The test has changed nothing: the secret is still there, and ends are delivered.
    let target = queue.webhooks().target(&name).await.unwrap().unwrap();
    assert!(target.key.is_some());
    let path = format!("/v1/tasks/{}/cancel", task["task"]["id"].as_str().unwrap());
    server.reply(api("POST", path)).await;
    let removed = server.send(api("DELETE", "/v1/webhooks/billing")).await;
    assert_eq!(removed.status(), 204);
    for (method, path) in [
        ("GET", "/v1/webhooks/billing"),
        ("DELETE", "/v1/webhooks/billing"),
        ("POST", "/v1/webhooks/billing/test"),
    ] {
        server
            .refused(api(method, path), 404, "webhook_not_found")
            .await;
    }
}

#[tokio::test]
async fn bad_webhooks_are_refused_and_write_nothing() {
    let server = serve(config()).await;
    let long = format!("https://example.org/{}", "x".repeat(2_048));
    let invalid = [
        json!({ "url": "ftp://example.org" }),
        json!({ "url": "https://user:password@example.org" }),
        json!({ "url": long }),
        json!({ "url": "https://a", "events": [] }),
        json!({ "url": "https://a b" }),
        json!({ "url": "https://a", "secret": "whsec_short" }),
    ];
    let unreadable = [
        json!({ "events": ["failed"] }),
        json!({ "url": "https://a", "retries": 3 }),
        json!({ "url": "https://a", "events": ["started"] }),
    ];
    let invalid = invalid.map(|body| (body, "bad_request"));
    let unreadable = unreadable.map(|body| (body, "bad_body"));
    for (body, code) in invalid.into_iter().chain(unreadable) {
        let request = api("PUT", "/v1/webhooks/a").json(&body);
        server.refused(request, 400, code).await;
        // Nor through the documents behind them.
        let write =
            json!({ "name": "a", "op_id": "550e8400-e29b-41d4-a716-446655440000", "body": body });
        let request = api("POST", "/v1/settings/webhooks").json(&write);
        server.refused(request, 400, "bad_request").await;
    }
    // A new one without a secret could not be signed.
    let write = json!({
        "name": "a", "op_id": "550e8400-e29b-41d4-a716-446655440000", "body": { "url": "https://a" },
    });
    let request = api("POST", "/v1/settings/webhooks").json(&write);
    server.refused(request, 400, "bad_request").await;
    let (_, all) = server.reply(api("GET", "/v1/webhooks")).await;
    assert_eq!(all["webhooks"], json!([]));
}

#[tokio::test]
async fn at_most_32_webhooks_exist() {
    let server = serve(config()).await;
    let put = |number: u32| {
        let path = format!("/v1/webhooks/w{number}");
        api("PUT", path).json(&json!({ "url": "https://example.org/" }))
    };
    for number in 0..32 {
        assert_eq!(server.send(put(number)).await.status(), 200, "{number}");
    }
    server.refused(put(32), 400, "bad_request").await;
    assert_eq!(server.send(put(31)).await.status(), 200);
}

#[tokio::test]
async fn only_operators_see_webhooks_and_make_up_deliveries() {
    let store = memory();
    let tokens = TokenStore::new(client_of(&store), TokioRuntime::shared());
    let scopes = [Scope::Read, Scope::Submit, Scope::Work];
    let other = tokens.create("other", &scopes, None).await.unwrap();
    let admin = tokens.create("ops", &[Scope::Admin], None).await.unwrap();
    let mut config = config();
    config.auth = Auth::stored(tokens);
    let server = serve_store(store, config).await;
    let delivery = json!({
        "task_type": "qo.webhook", "queue": "webhooks",
        "input": { "webhook": "billing", "body": { "type": "task.completed", "data": {} } },
    });
    for (method, path, body) in [
        ("GET", "/v1/webhooks", None),
        ("GET", "/v1/settings/webhooks", None),
        ("POST", "/v1/webhooks/billing/test", None),
        ("POST", "/v1/tasks", Some(&delivery)),
    ] {
        let request = api(method, path).token(other.reveal());
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        server.refused(request, 403, "forbidden").await;
    }
    let many = api("POST", "/v1/tasks")
        .token(other.reveal())
        .json(&json!([delivery]));
    let (_, results) = server.reply(many).await;
    assert_eq!(results[0]["problem"]["code"], "forbidden", "{results}");
    let list = api("GET", "/v1/webhooks").token(admin.reveal());
    assert_eq!(server.send(list).await.status(), 200);
}

/// A client of a server never sees a secret that it did not bring or make, and loses none.
#[tokio::test]
async fn a_remote_queue_changes_webhooks_without_their_secrets() {
    let server = serve(config()).await;
    let remote = RemoteEngine::new(
        RemoteConfig::parse(&server.url).unwrap(),
        TokioRuntime::shared(),
    );
    let remote = Queue::new(Arc::new(remote.unwrap()), TokioRuntime::shared());
    let local = Queue::new(Arc::clone(&server.engine), TokioRuntime::shared());
    let webhook = Webhook::new("https://example.org/");
    let put = remote.webhooks().put("a", webhook.clone()).await.unwrap();
    let secret = put.secret.unwrap();
    let name = "a".parse().unwrap();
    let signed = |target: Option<qo::webhook::WebhookTarget>| {
        let key = target.unwrap().key;
        key.map(|key| key.sign("id", 1, b"body"))
    };
    let before = signed(local.webhooks().target(&name).await.unwrap());
    assert!(before.is_some() && secret.as_str().starts_with("whsec_"));
    assert_eq!(signed(remote.webhooks().target(&name).await.unwrap()), None);
    let mut changed = webhook;
    changed.queues = vec!["mail".parse().unwrap()];
    let put = remote.webhooks().put("a", changed).await.unwrap();
    assert_eq!(put.secret, None);
    remote.webhooks().test("a").await.unwrap();
    assert_eq!(
        signed(local.webhooks().target(&name).await.unwrap()),
        before
    );
    remote.webhooks().remove("a").await.unwrap();
    assert_eq!(local.webhooks().list().await.unwrap(), []);
    remote.engine().close().await;
}
