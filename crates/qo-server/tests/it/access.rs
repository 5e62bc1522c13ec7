//! Each route without a token and with the wrong scope: the right status, and nothing is written.

use qo::Timestamp;
use qo_server::tokens::{NewToken, Scope, TokenStore};
use qo_server::{Auth, ServeError, Server, documented};
use qo_store::runtime::TokioRuntime;

use qo_fixtures::client_of;

use crate::support::{api, config, engine_on, memory, serve};

pub(crate) fn token(scopes: &[Scope]) -> NewToken {
    let runtime = TokioRuntime::shared();
    let name = "test".parse().unwrap();
    NewToken::draw(
        &*runtime,
        name,
        scopes.iter().copied(),
        Timestamp::MIN,
        None,
    )
}

/// The path with its parameters filled in.
pub(crate) fn filled(path: &str) -> String {
    path.replace("{id}", "550e8400-e29b-41d4-a716-446655440000")
        .replace("{operation}", "550e8400-e29b-41d4-a716-446655440000")
        .replace("{worker}", "w")
        .replace("{token}", "0123456789abcdef")
        .replace("{queue}", "q")
        .replace("{kind}", "schedules")
        .replace("{type}", "t")
        .replace("{name}", "nightly")
        .replace("{address}", &"0".repeat(64))
}

fn is_free(path: &str) -> bool {
    path.starts_with("/docs")
        || matches!(path, "/healthz" | "/readyz" | "/ping" | "/v1/openapi.json")
}

/// The scopes that allow a route, according to the document.
fn needed(method: &str, path: &str) -> Vec<Scope> {
    let document = serde_json::to_value(qo_server::document()).unwrap();
    let operation = &document["paths"][path][method.to_lowercase()];
    let scopes = &operation["security"][0]["bearer"];
    let mut scopes: Vec<Scope> = scopes
        .as_array()
        .unwrap()
        .iter()
        .map(|scope| scope.as_str().unwrap().parse().unwrap())
        .collect();
    if scopes.is_empty() {
        return Scope::ALL.to_vec();
    }
    scopes.push(Scope::Admin);
    scopes
}

#[tokio::test]
async fn every_route_requires_a_token_with_the_right_scope() {
    let tokens: Vec<(Scope, NewToken)> = Scope::ALL.map(|scope| (scope, token(&[scope]))).into();
    let mut config = config();
    config.auth = Auth::given(
        tokens
            .iter()
            .map(|(_, token)| token.record.clone())
            .collect(),
    );
    let server = serve(config).await;
    let before = server.objects().await;
    let stranger = token(&Scope::ALL);
    let mut guarded = 0;
    for (method, path) in documented() {
        let request = || api(&method, filled(&path)).json(&serde_json::json!({}));
        if is_free(&path) {
            assert!(
                server.send(request()).await.status().is_success(),
                "{method} {path}"
            );
            continue;
        }
        guarded += 1;
        if method == "HEAD" {
            // The response has no body.
            assert_eq!(server.send(request()).await.status(), 401);
            continue;
        }
        let problem = server.refused(request(), 401, "unauthorized").await;
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("qo token create")
        );
        for bad in ["", "nonsense", stranger.reveal()] {
            server
                .refused(request().token(bad), 401, "unauthorized")
                .await;
        }
        let basic = request().header("authorization", "Basic YTpi");
        server.refused(basic, 401, "unauthorized").await;
        let needed = needed(&method, &path);
        for (scope, token) in &tokens {
            if needed.contains(scope) {
                if path == "/v1/events" {
                    continue;
                }
                let (status, _) = server.reply(request().token(token.reveal())).await;
                assert!(
                    !matches!(status, 401 | 403),
                    "{method} {path} {scope}: {status}"
                );
            } else {
                let problem = server
                    .refused(request().token(token.reveal()), 403, "forbidden")
                    .await;
                assert!(!problem.to_string().contains(token.reveal()));
            }
        }
    }
    assert!(guarded > 25, "{guarded}");
    // The allowed requests have invalid bodies, except that pausing and heartbeats need none, and that a blob may be any bytes.
    let tasks = |objects: &[(String, Vec<u8>)]| {
        objects
            .iter()
            .filter(|(key, _)| !key.starts_with("meta/") && !key.starts_with("blobs/"))
            .count()
    };
    assert_eq!(tasks(&server.objects().await), tasks(&before));
}

#[tokio::test]
async fn a_server_without_tokens_listens_only_on_loopback() {
    for (address, stored) in [("0.0.0.0:0", false), ("[::]:0", false), ("0.0.0.0:0", true)] {
        let mut config = config();
        config.address = address.parse().unwrap();
        let store = memory();
        if stored {
            // The store could contain tokens, but contains none.
            let tokens = TokenStore::new(client_of(&store), TokioRuntime::shared());
            config.auth = Auth::stored(tokens);
        }
        let engine = engine_on(&store, qo::DirectConfig::local());
        let queue = qo::Queue::new(std::sync::Arc::new(engine), TokioRuntime::shared());
        let error = Server::bind(queue, config).await.unwrap_err();
        assert!(matches!(error, ServeError::Open { .. }));
        let text = error.to_string();
        assert!(
            text.contains("qo token create") && text.contains("127.0.0.1"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_server_with_tokens_listens_on_other_addresses() {
    let token = token(&[Scope::Read]);
    let mut config = config();
    config.address = "0.0.0.0:0".parse().unwrap();
    config.auth = Auth::given(vec![token.record.clone()]);
    let mut server = serve(config).await;
    server.url = server.url.replace("0.0.0.0", "127.0.0.1");
    server
        .refused(api("GET", "/v1/stats"), 401, "unauthorized")
        .await;
    let (status, _) = server
        .reply(api("GET", "/v1/stats").token(token.reveal()))
        .await;
    assert_eq!(status, 200);
}
