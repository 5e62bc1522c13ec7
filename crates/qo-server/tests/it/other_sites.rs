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

#[tokio::test]
async fn other_names_of_this_machine_are_allowed() {
    let mut config = config();
    config.hosts = vec!["queue.localhost".to_owned()];
    let server = serve(config).await;
    let named = api("GET", "/v1/stats").header("host", "Queue.localhost:80");
    assert_eq!(server.send(named).await.status(), 200);
}
