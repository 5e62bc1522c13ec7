//! A server on a loopback port, and requests to it.

use std::sync::Arc;
use std::time::Duration;

use qo::blob::Blobs;
use qo::{BrokerEngine, DirectConfig, DirectEngine, Engine, JsonConfig, Queue};
use qo_broker::SlateConfig;
use qo_fixtures::{TestStore, client_of};
use qo_server::{Server, ServerConfig};
use qo_store::client::ClientConfig;
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::{Store, StoreClient};
use reqwest::{Client, Method, Response};
use serde_json::Value;
use tokio::sync::oneshot;

/// The maximum wait for something that should happen at once. The machine may be busy.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);

/// A server that runs until it is dropped.
pub(crate) struct TestServer {
    pub(crate) url: String,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) client: StoreClient,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) ended: Option<tokio::task::JoinHandle<()>>,
    http: Client,
}

/// A new store in memory.
pub(crate) fn memory() -> Store {
    TestStore::memory().open()
}

pub(crate) fn engine_on(store: &Store, config: DirectConfig) -> DirectEngine {
    let runtime = TokioRuntime::shared();
    DirectEngine::new(client_of(store), store.admin.clone(), runtime, config)
}

/// A broker with a JSON journal on a store.
pub(crate) fn json_on(store: &Store) -> BrokerEngine {
    BrokerEngine::json(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        TokioRuntime::shared(),
        ClientConfig::default(),
        JsonConfig::local(),
    )
}

/// A broker on SlateDB on a store.
pub(crate) async fn slate_on(store: &Store) -> BrokerEngine {
    BrokerEngine::slate(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        TokioRuntime::shared(),
        ClientConfig::default(),
        SlateConfig::default(),
    )
    .await
    .unwrap()
}

pub(crate) fn config() -> ServerConfig {
    ServerConfig::new("127.0.0.1:0".parse().unwrap())
}

/// Serves a new store in memory.
pub(crate) async fn serve(config: ServerConfig) -> TestServer {
    serve_store(memory(), config).await
}

pub(crate) async fn serve_store(store: Store, config: ServerConfig) -> TestServer {
    let engine = engine_on(&store, DirectConfig::local());
    serve_engine(store, Arc::new(engine), config).await
}

pub(crate) async fn serve_engine(
    store: Store,
    engine: Arc<dyn Engine>,
    config: ServerConfig,
) -> TestServer {
    let runtime: Arc<dyn Runtime> = TokioRuntime::shared();
    let limit = Blobs::limit_of(store.kind);
    let blobs = Blobs::new(client_of(&store), Arc::clone(&runtime), limit);
    let queue = Queue::new(Arc::clone(&engine), runtime).with_blobs(Arc::new(blobs));
    let server = Server::bind(queue, config).await.unwrap();
    let url = server.url();
    let (stop, stopped) = oneshot::channel();
    let ended = tokio::task::spawn(server.run_until(async {
        let _ = stopped.await;
    }));
    TestServer {
        url,
        client: client_of(&store),
        engine,
        stop: Some(stop),
        ended: Some(ended),
        http: plain_client(),
    }
}

pub(crate) fn plain_client() -> Client {
    // The remote engine does the same. The first call wins.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .no_proxy()
        .tls_certs_only(Vec::new())
        .build()
        .unwrap()
}

/// A request.
pub(crate) struct ApiRequest {
    method: Method,
    path: String,
    token: Option<String>,
    headers: Vec<(&'static str, String)>,
    body: Option<String>,
}

pub(crate) fn api(method: &str, path: impl Into<String>) -> ApiRequest {
    ApiRequest {
        method: method.parse().unwrap(),
        path: path.into(),
        token: None,
        headers: Vec::new(),
        body: None,
    }
}

impl ApiRequest {
    pub(crate) fn token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<String>) -> Self {
        self.body = Some(body.into());
        self.header("content-type", "application/json")
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body(body.to_string())
    }
}

impl TestServer {
    pub(crate) async fn send(&self, api_request: ApiRequest) -> Response {
        let mut request = self.http.request(
            api_request.method,
            format!("{}{}", self.url, api_request.path),
        );
        for (name, value) in api_request.headers {
            request = request.header(name, value);
        }
        if let Some(token) = api_request.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(body) = api_request.body {
            request = request.body(body);
        }
        request.timeout(WAIT_MAX).send().await.unwrap()
    }

    /// Sends a request, and returns the status and the JSON of the response.
    pub(crate) async fn reply(&self, api_request: ApiRequest) -> (u16, Value) {
        let response = self.send(api_request).await;
        let status = response.status().as_u16();
        let body = response.bytes().await.unwrap();
        let value = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&body)
                .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&body)))
        };
        (status, value)
    }

    /// Sends a request, and expects a well-formed problem with this status and code.
    pub(crate) async fn refused(&self, api_request: ApiRequest, status: u16, code: &str) -> Value {
        let what = format!("{} {}", api_request.method, api_request.path);
        let response = self.send(api_request).await;
        let found = response.status().as_u16();
        let content_type = response.headers()["content-type"].clone();
        let name = response.headers()["x-request-id"].clone();
        assert!(response.headers().contains_key("qo-time"), "{what}");
        let body = response.bytes().await.unwrap();
        let problem: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (found, problem["code"].as_str()),
            (status, Some(code)),
            "{what}: {problem}"
        );
        assert_eq!(content_type, "application/problem+json", "{what}");
        assert_eq!(problem["status"], status, "{what}");
        assert_eq!(problem["type"], format!("urn:qo:problem:{code}"), "{what}");
        assert_eq!(problem["request_id"], name.to_str().unwrap(), "{what}");
        for field in ["title", "detail"] {
            assert!(!problem[field].as_str().unwrap().is_empty(), "{what}");
        }
        problem
    }

    /// Every object of the store with its bytes.
    pub(crate) async fn objects(&self) -> Vec<(String, Vec<u8>)> {
        let page = self.client.page("", None, 1_000).await.unwrap();
        let mut objects = Vec::new();
        for entry in page.entries {
            let object = self.client.get(&entry.key).await.unwrap();
            objects.push((entry.key, object.body.to_vec()));
        }
        objects
    }

    pub(crate) fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    pub(crate) fn authority(&self) -> &str {
        self.url.split_once("://").unwrap().1
    }
}
