//! Tokens in the store.

use std::time::Duration;

use qo::{Engine as _, IdempotencyRequest, IdempotencyScope, Json, SubmitRequest};
use qo_remote::{RemoteConfig, RemoteEngine, Token};
use qo_server::Auth;
use qo_server::tokens::{NewToken, Scope, TokenError, TokenStore};
use qo_store::runtime::TokioRuntime;
use serde_json::{Value, json};

use qo_fixtures::{client_of, until};

use crate::support::{api, config, memory, serve_store};

#[tokio::test]
async fn tokens_are_created_listed_and_revoked() {
    let store = memory();
    let tokens = TokenStore::new(client_of(&store), TokioRuntime::shared());
    assert_eq!(tokens.list().await.unwrap(), []);
    let first = tokens.create("ci", &[Scope::Submit], None).await.unwrap();
    let second = tokens
        .create("ops", &[Scope::Admin], Some(Duration::from_mins(1)))
        .await
        .unwrap();
    let listed = tokens.list().await.unwrap();
    assert_eq!(listed, [first.record.clone(), second.record.clone()]);
    assert_eq!(
        second.record.expires_at,
        Some(second.record.created_at.plus_millis(60_000))
    );
    let text = client_of(&store).get("meta/tokens.json").await.unwrap();
    let text = String::from_utf8(text.body.to_vec()).unwrap();
    let secret = first.reveal().rsplit('_').next().unwrap();
    assert!(
        !text.contains(secret),
        "the stored token contains its secret"
    );

    assert_eq!(tokens.revoke(&first.record.id).await.unwrap(), first.record);
    let gone = tokens.revoke(&first.record.id).await.unwrap_err();
    assert!(matches!(gone, TokenError::NotFound { .. }));
    assert_eq!(tokens.list().await.unwrap(), [second.record]);
    assert_eq!(
        tokens.create("x", &[], None).await.unwrap_err(),
        TokenError::NoScopes
    );
    assert!(tokens.create("", &[Scope::Read], None).await.is_err());
}

#[tokio::test]
async fn concurrent_creations_lose_no_token() {
    let store = memory();
    let tokens = TokenStore::new(client_of(&store), TokioRuntime::shared());
    let jobs = (0..8).map(|n| {
        let tokens = tokens.clone();
        async move {
            tokens
                .create(&format!("t{n}"), &[Scope::Read], None)
                .await
                .unwrap()
        }
    });
    futures_util::future::join_all(jobs).await;
    assert_eq!(tokens.list().await.unwrap().len(), 8);
}

#[tokio::test]
async fn a_server_notices_new_and_revoked_tokens() {
    let store = memory();
    let tokens = TokenStore::new(client_of(&store), TokioRuntime::shared());
    let mut config = config();
    config.auth = Auth::stored(tokens.clone());
    let server = serve_store(store, config).await;
    let status = async |token: &str| server.reply(api("GET", "/v1/stats").token(token)).await.0;
    assert_eq!(
        status("none").await,
        200,
        "without tokens, loopback requests are allowed"
    );

    let token = tokens.create("ops", &[Scope::Read], None).await.unwrap();
    until("a token is required", async || {
        (status("none").await == 401).then_some(())
    })
    .await;
    assert_eq!(status(token.reveal()).await, 200);

    tokens.revoke(&token.record.id).await.unwrap();
    until("the token is revoked", async || {
        (status(token.reveal()).await == 401).then_some(())
    })
    .await;
    assert_eq!(
        status("none").await,
        401,
        "after the last token was revoked, requests without one stay refused"
    );
}

#[tokio::test]
async fn unreadable_tokens_stop_the_server() {
    let store = memory();
    client_of(&store)
        .put("meta/tokens.json", "nonsense".into())
        .await
        .unwrap();
    let mut config = config();
    config.auth = Auth::stored(TokenStore::new(client_of(&store), TokioRuntime::shared()));
    let engine = crate::support::engine_on(&store, qo::DirectConfig::local());
    let queue = qo::Queue::new(std::sync::Arc::new(engine), TokioRuntime::shared());
    let error = qo_server::Server::bind(queue, config).await.unwrap_err();
    assert!(error.to_string().contains("tokens.json"), "{error}");
}

#[tokio::test]
async fn after_the_last_token_was_revoked_a_new_server_admits_nobody() {
    let store = memory();
    let tokens = TokenStore::new(client_of(&store), TokioRuntime::shared());
    let token = tokens.create("ops", &[Scope::Admin], None).await.unwrap();
    tokens.revoke(&token.record.id).await.unwrap();
    let mut config = config();
    config.auth = Auth::stored(tokens);
    let server = serve_store(store, config).await;
    for token in [None, Some("none"), Some(token.reveal())] {
        let mut request = api("GET", "/v1/stats");
        if let Some(token) = token {
            request = request.token(token);
        }
        server.refused(request, 401, "unauthorized").await;
    }
}

#[tokio::test]
async fn a_public_name_requires_tokens() {
    for (name, is_allowed) in [
        ("queue.example.org", false),
        ("10.0.0.7", false),
        ("localhost", true),
        ("queue.localhost", true),
        ("127.0.0.1", true),
        ("::1", true),
    ] {
        for stored in [false, true] {
            let store = memory();
            let mut config = config();
            config.hosts = vec![name.to_owned()];
            if stored {
                config.auth =
                    Auth::stored(TokenStore::new(client_of(&store), TokioRuntime::shared()));
            }
            let engine = crate::support::engine_on(&store, qo::DirectConfig::local());
            let queue = qo::Queue::new(std::sync::Arc::new(engine), TokioRuntime::shared());
            let bound = qo_server::Server::bind(queue, config).await;
            assert_eq!(bound.is_ok(), is_allowed, "{name}, stored: {stored}");
            if let Err(error) = bound {
                let text = error.to_string();
                assert!(
                    text.contains(name) && text.contains("qo token create"),
                    "{text}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_read_of_the_tokens_delays_no_request() {
    let mut store = memory();
    let reads = crate::bodies::HeldReads::new(std::sync::Arc::clone(&store.objects), "meta/tokens");
    store.objects = std::sync::Arc::new(qo_store::wrap::layer::LayeredStore(reads.clone()));
    let tokens = TokenStore::new(client_of(&store), TokioRuntime::shared());
    let token = tokens.create("ops", &[Scope::Read], None).await.unwrap();
    let mut config = config();
    config.auth = Auth::stored(tokens);
    let server = serve_store(store, config).await;
    let status = async || {
        server
            .reply(api("GET", "/v1/info").token(token.reveal()))
            .await
            .0
    };
    assert_eq!(status().await, 200);
    reads
        .closed
        .store(true, std::sync::atomic::Ordering::SeqCst);
    until("the tokens are read again", async || {
        assert_eq!(status().await, 200);
        (reads.held.load(std::sync::atomic::Ordering::SeqCst) > 0).then_some(())
    })
    .await;
    for _ in 0..20 {
        assert_eq!(status().await, 200, "the known tokens stay valid");
    }
    reads.open();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_events_ends_with_its_token() {
    let store = memory();
    let tokens = TokenStore::new(client_of(&store), TokioRuntime::shared());
    let revoked = tokens.create("a", &[Scope::Read], None).await.unwrap();
    let lifetime = Some(Duration::from_secs(8));
    let expiring = tokens.create("b", &[Scope::Read], lifetime).await.unwrap();
    let mut config = config();
    config.auth = Auth::stored(tokens.clone());
    let server = serve_store(store, config).await;
    let listen = async |token: &str| server.send(api("GET", "/v1/events").token(token)).await;
    let mut streams = [
        listen(revoked.reveal()).await,
        listen(expiring.reveal()).await,
    ];
    tokens.revoke(&revoked.record.id).await.unwrap();
    for stream in &mut streams {
        assert_eq!(stream.status(), 200);
        // An error would mean that the client has given up.
        let rest = async { while stream.chunk().await.unwrap().is_some() {} };
        tokio::time::timeout(crate::support::WAIT_MAX, rest)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_token_that_may_only_submit_reads_nothing_of_a_duplicate() {
    let submitter = crate::access::token(&[Scope::Submit]);
    let reader = crate::access::token(&[Scope::Submit, Scope::Read]);
    let mut config = config();
    config.auth = Auth::given(vec![submitter.record.clone(), reader.record.clone()]);
    let server = serve_store(memory(), config).await;
    let submit = |token: &str, body: &Value| api("POST", "/v1/tasks").token(token).json(body);
    let first = json!({"task_type": "t", "input": "secret", "idempotency_key": "k"});
    let (status, created) = server.reply(submit(submitter.reveal(), &first)).await;
    assert_eq!((status, &created["task"]["input"]), (201, &json!("secret")));
    let id = created["task"]["id"].clone();

    let guess = json!({"task_type": "t", "input": "mine", "idempotency_key": "k"});
    let expected = json!({"id": id, "status": "pending", "duplicate": true});
    let (status, reply) = server.reply(submit(submitter.reveal(), &guess)).await;
    assert_eq!((status, &reply), (200, &expected));
    let (_, replies) = server
        .reply(submit(
            submitter.reveal(),
            &json!([guess, {"task_type": "t", "id": id}]),
        ))
        .await;
    assert_eq!(replies, json!([expected, expected]));
    let (_, reply) = server.reply(submit(reader.reveal(), &guess)).await;
    assert_eq!(reply["task"]["input"], "secret");

    // The library shows the same: the id and status of the existing task, and otherwise what it has sent.
    let mut remote = RemoteConfig::parse(&server.url).unwrap();
    remote.token = Some(Token::new(submitter.reveal()));
    let remote = RemoteEngine::new(remote, TokioRuntime::shared()).unwrap();
    let mut request = SubmitRequest::new("t".parse().unwrap(), Json::parse("\"mine\"").unwrap());
    request.idempotency = Some(IdempotencyRequest {
        key: "k".parse().unwrap(),
        scope: IdempotencyScope::default(),
        window_ms: None,
    });
    let submitted = remote.submit(request).await.unwrap();
    assert!(submitted.duplicate);
    assert_eq!(submitted.task.id.to_string(), id.as_str().unwrap());
    assert_eq!(submitted.task.inline_input().unwrap().as_str(), "\"mine\"");
}

#[tokio::test]
async fn tokens_are_created_listed_and_revoked_over_http() {
    let store = memory();
    let tokens = TokenStore::new(client_of(&store), TokioRuntime::shared());
    let admin = tokens.create("admin", &[Scope::Admin], None).await.unwrap();
    let mut config = config();
    config.auth = Auth::stored(tokens.clone());
    let server = serve_store(store, config).await;
    let as_admin = |method: &str, path: String| api(method, path).token(admin.reveal());

    let made = crate::access::token(&[Scope::Read]);
    let path = format!("/v1/tokens/{}", made.record.id);
    let body = serde_json::json!({
        "name": "reader", "scopes": ["read"], "sha256": made.record.sha256.to_string(), "valid_for_ms": 3_600_000,
    });
    // The response to the first request may have been lost.
    for _ in 0..2 {
        let request = as_admin("PUT", path.clone()).json(&body);
        assert_eq!(server.reply(request).await.0, 204);
    }
    let stats = |token: &str| api("GET", "/v1/stats").token(token);
    assert_eq!(server.reply(stats(made.reveal())).await.0, 200);
    let (_, listed) = server.reply(as_admin("GET", "/v1/tokens".to_owned())).await;
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(listed[1]["name"], "reader");
    assert!(listed[1]["expires_at"].is_string() && listed[1]["sha256"].is_null());

    // Another token cannot take its place, and mistakes are refused.
    let mut other = body.clone();
    other["sha256"] = "0".repeat(64).into();
    let request = as_admin("PUT", path.clone()).json(&other);
    server.refused(request, 400, "bad_request").await;
    for (field, value) in [
        ("scopes", serde_json::json!([])),
        ("scopes", serde_json::json!(["everything"])),
        ("name", "".into()),
        ("sha256", "abc".into()),
    ] {
        let mut bad = body.clone();
        bad[field] = value;
        let request = as_admin("PUT", "/v1/tokens/0123456789abcdef".to_owned()).json(&bad);
        server.refused(request, 400, "bad_request").await;
    }
    let request = as_admin("PUT", "/v1/tokens/short".to_owned()).json(&body);
    server.refused(request, 400, "bad_request").await;
    assert_eq!(tokens.list().await.unwrap().len(), 2);

    assert_eq!(server.reply(as_admin("DELETE", path.clone())).await.0, 204);
    server
        .refused(stats(made.reveal()), 401, "unauthorized")
        .await;
    let again = as_admin("DELETE", path);
    server.refused(again, 404, "token_not_found").await;
}

#[tokio::test]
async fn the_token_of_a_secret_is_valid_besides_the_stored_ones() {
    let store = memory();
    let tokens = TokenStore::new(client_of(&store), TokioRuntime::shared());
    let name = || "secret".parse().unwrap();
    let of_secret = NewToken::of_secret(name(), b"a secret of all nodes");
    let same = NewToken::of_secret(name(), b"a secret of all nodes");
    assert_eq!(of_secret.reveal(), same.reveal());
    let mut config = config();
    // Without tokens, a server would not be reachable under a public name.
    config.hosts = vec!["queue.example.org".to_owned()];
    config.auth = Auth::stored_besides(tokens.clone(), vec![of_secret.record.clone()]);
    let server = serve_store(store, config).await;
    let status = async |token: &str| server.reply(api("GET", "/v1/stats").token(token)).await.0;
    assert_eq!(status(of_secret.reveal()).await, 200);
    let stored = tokens.create("ops", &[Scope::Read], None).await.unwrap();
    until("a token is required", async || {
        (status("none").await == 401).then_some(())
    })
    .await;
    assert_eq!(status(of_secret.reveal()).await, 200);
    assert_eq!(status(stored.reveal()).await, 200);
    let other = NewToken::of_secret(name(), b"another secret");
    assert_eq!(status(other.reveal()).await, 401);
}

#[tokio::test]
async fn the_history_names_the_token_and_what_the_client_says() {
    let store = memory();
    let tokens = TokenStore::new(client_of(&store), TokioRuntime::shared());
    let token = tokens.create("night shift", &[Scope::Admin], None).await;
    let token = token.unwrap().reveal().to_owned();
    let mut config = config();
    config.auth = Auth::stored(tokens);
    let server = serve_store(store, config).await;
    let send = async |method: &str, path: String, body: Option<Value>| {
        let mut request = api(method, path).token(&token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        server
            .reply(request.header("qo-actor", "ada@laptop"))
            .await
            .1
    };
    let body = json!({"task_type": "t"});
    let submitted = send("POST", "/v1/tasks".to_owned(), Some(body)).await;
    let id = submitted["task"]["id"].as_str().unwrap();
    send("POST", format!("/v1/tasks/{id}/cancel"), None).await;
    let bulk = json!({"operation": "replay", "filter": {"ids": [id]}});
    let report = send("POST", "/v1/bulk".to_owned(), Some(bulk)).await;
    assert_eq!(report["done"], 1, "{report}");
    let plain = api("POST", format!("/v1/tasks/{id}/cancel")).token(&token);
    server.reply(plain).await;
    let history = send("GET", format!("/v1/tasks/{id}/history"), None).await;
    let events = history["events"].as_array().unwrap();
    let by: Vec<_> = events.iter().map(|event| event["by"].as_str()).collect();
    let named = Some("token night shift: ada@laptop");
    assert_eq!(
        by,
        [None, named, named, Some("token night shift")],
        "{history}"
    );
}
