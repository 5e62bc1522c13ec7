//! Another web site must not control the server through a local browser.

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
