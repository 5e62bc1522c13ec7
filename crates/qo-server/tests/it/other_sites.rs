//! Another web site must not control the server through a local browser.

use qo_server::tokens::Scope;
use qo_server::{Auth, ServeError, Server};
use reqwest::Response;

use crate::access::token;
use crate::support::{api, config, serve};

#[tokio::test]
async fn without_tokens_requests_of_other_sites_are_refused() {
    let server = serve(config()).await;
    let own = format!("http://{}", server.authority());
    for (name, value) in [
        ("host", "evil.example"),
        ("host", "evil.example:80"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1:1"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let request = api("POST", "/v1/queues/q/pause").header(name, value);
        server.refused(request, 403, "cross_site").await;
        let page = api("GET", "/docs").header(name, value);
        server.refused(page, 403, "cross_site").await;
    }
    assert_eq!(server.objects().await, [], "nothing was written");
    for (name, value) in [
        ("origin", own.as_str()),
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-site", "none"),
        ("host", "localhost:1234"),
        ("host", "[::1]:1234"),
    ] {
        let response = server
            .send(api("GET", "/v1/stats").header(name, value))
            .await;
        assert_eq!(response.status(), 200, "{name}: {value}");
    }
}

/// A link on another site opens the dashboard, and nothing else of the server.
#[tokio::test]
async fn links_of_other_sites_open_pages() {
    let server = serve(config()).await;
    let followed = |method: &str, path: &str, dest: &str| {
        api(method, path)
            .header("sec-fetch-site", "cross-site")
            .header("sec-fetch-mode", "navigate")
            .header("sec-fetch-dest", dest)
    };
    for path in ["/ui/", "/docs"] {
        let response = server.send(followed("GET", path, "document")).await;
        assert_eq!(response.status(), 200, "{path}");
    }
    for (method, path, dest) in [
        ("GET", "/ui/", "iframe"),
        ("POST", "/ui/", "document"),
        ("GET", "/ui/js/app.js", "document"),
        ("GET", "/v1/stats", "document"),
        ("POST", "/v1/queues/q/pause", "document"),
    ] {
        let request = followed(method, path, dest);
        server.refused(request, 403, "cross_site").await;
    }
    let rebound = followed("GET", "/ui/", "document").header("host", "evil.example");
    server.refused(rebound, 403, "cross_site").await;
}

#[tokio::test]
async fn other_names_of_this_machine_are_allowed() {
    let mut config = config();
    config.hosts = vec!["queue.localhost".to_owned()];
    let server = serve(config).await;
    let named = api("GET", "/v1/stats").header("host", "Queue.localhost:80");
    assert_eq!(server.send(named).await.status(), 200);
}

const BUCKET: &str = "https://bucket.example.org";

/// A page in a bucket may ask a server that allows its origin, with a token.
#[tokio::test]
async fn pages_of_allowed_origins_use_the_api_with_a_token() {
    let token = token(&[Scope::Read]);
    let mut config = config();
    config.auth = Auth::given(vec![token.record.clone()]);
    config.origins = vec![BUCKET.parse().unwrap()];
    let server = serve(config).await;
    let allowed = |response: &Response| {
        let origin = response.headers().get("access-control-allow-origin");
        origin.map(|origin| origin.to_str().unwrap().to_owned())
    };
    let asks = |origin: &str| {
        api("OPTIONS", "/v1/queues/q/pause")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header(
                "access-control-request-headers",
                "authorization,content-type,qo-actor",
            )
    };
    let response = server.send(asks(BUCKET)).await;
    assert_eq!(response.status(), 200);
    assert_eq!(allowed(&response).as_deref(), Some(BUCKET));
    let headers = &response.headers()["access-control-allow-headers"];
    assert_eq!(headers, "authorization,content-type,qo-actor");
    assert!(
        !response
            .headers()
            .contains_key("access-control-allow-credentials")
    );
    let response = server.send(asks("https://evil.example")).await;
    assert_eq!(allowed(&response), None);

    let read = || api("GET", "/v1/stats").header("origin", BUCKET);
    let response = server.send(read().token(token.reveal())).await;
    assert_eq!(response.status(), 200);
    assert_eq!(allowed(&response).as_deref(), Some(BUCKET));
    assert_eq!(
        response.headers()["access-control-expose-headers"],
        "retry-after,qo-time"
    );
    // The origin replaces no token, and the page can read the refusal.
    let response = server.send(read()).await;
    assert_eq!(response.status(), 401);
    assert_eq!(allowed(&response).as_deref(), Some(BUCKET));
    let other = api("GET", "/v1/stats").header("origin", "https://evil.example");
    let response = server.send(other.token(token.reveal())).await;
    assert_eq!(allowed(&response), None);
}

#[tokio::test]
async fn a_server_without_tokens_allows_no_other_origin() {
    let mut config = config();
    config.origins = vec![BUCKET.parse().unwrap()];
    let queue = qo::connect("memory:").await.unwrap();
    let error = Server::bind(queue, config).await.err().unwrap();
    assert!(matches!(error, ServeError::OpenOrigin { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains(BUCKET) && text.contains("qo token create"),
        "{text}"
    );
}
