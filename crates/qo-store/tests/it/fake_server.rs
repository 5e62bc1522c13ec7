//! A small HTTP/1.1 server for tests. It records every request and responds as a function decides.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use qo_store::runtime::TokioRuntime;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A received request. Header names are in lower case; path and query are not decoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The value of a query parameter, decoded.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        url::form_urlencoded::parse(self.query.as_bytes())
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Method, path and query, as one line.
    pub(crate) fn line(&self) -> String {
        format!("{} {}?{}", self.method, self.path, self.query)
    }
}

/// A response.
#[derive(Debug, Clone, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Close the connection instead of responding.
    pub(crate) hangs_up: bool,
}

impl Response {
    pub(crate) fn new(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    pub(crate) fn hang_up() -> Self {
        Self {
            hangs_up: true,
            ..Self::default()
        }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The error document of S3 and Azure.
    pub(crate) fn error(status: u16, code: &str) -> Self {
        Self::new(status)
            .header("content-type", "application/xml")
            .body(format!(
                "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>because of {code}</Message></Error>"
            ))
    }
}

type Handler = dyn Fn(&Request) -> Response + Send + Sync;

/// The server and its recorded requests.
pub(crate) struct FakeServer {
    pub(crate) endpoint: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl FakeServer {
    pub(crate) async fn start(
        handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        let handler: Arc<Handler> = Arc::new(handler);
        let runtime = TokioRuntime::shared();
        let inner = Arc::clone(&runtime);
        runtime.spawn(Box::pin(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (handler, requests) = (Arc::clone(&handler), Arc::clone(&recorded));
                inner.spawn(Box::pin(async move {
                    serve(stream, &*handler, &requests).await;
                }));
            }
        }));
        Self { endpoint, requests }
    }

    /// A server that returns these responses in order, and then 418.
    pub(crate) async fn scripted(responses: Vec<Response>) -> Self {
        let responses = Mutex::new(responses.into_iter());
        Self::start(move |_| {
            let mut responses = responses.lock().unwrap();
            responses.next().unwrap_or_else(|| Response::new(418))
        })
        .await
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(stream: TcpStream, handler: &Handler, requests: &Mutex<Vec<Request>>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream).await {
        let response = handler(&request);
        let is_head = request.method == "HEAD";
        requests.lock().unwrap().push(request);
        if response.hangs_up {
            return;
        }
        let mut head = format!("HTTP/1.1 {} Status\r\n", response.status);
        for (name, value) in &response.headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        write!(head, "content-length: {}\r\n\r\n", response.body.len()).unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        if !is_head && response.status != 304 && response.status != 204 {
            stream.write_all(&response.body).await.unwrap();
        }
        stream.flush().await.unwrap();
    }
}

/// The next request of the connection; `None` at its end.
async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    if stream.read_line(&mut line).await.ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace();
    let method = words.next()?.to_owned();
    let target = words.next()?.to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut request = Request {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        ..Request::default()
    };
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        request
            .headers
            .insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = request.header("content-length").unwrap_or("0");
    request.body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut request.body).await.ok()?;
    Some(request)
}

/// Percent-decodes a path.
pub(crate) fn decode(text: &str) -> String {
    // A plus sign stands for itself in a path.
    let text = text.replace('+', "%2B");
    let decoded = url::form_urlencoded::parse(text.as_bytes())
        .next()
        .map(|(name, _)| name.into_owned());
    decoded.unwrap_or_default()
}
