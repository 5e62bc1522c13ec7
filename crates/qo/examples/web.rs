//! A web application that runs slow work in a worker: `cargo run --example web`.
//!
//! `POST /emails` submits a task and returns its id; `GET /emails/{id}` returns its status. The example sends itself two requests,
//! prints the responses, and ends. With `--serve` it runs until Ctrl-C.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use qo::{Context, ErrorKind, Queue, TaskError, TaskId, TaskInput, Worker};
use serde_json::{Value, json};

#[derive(serde::Serialize, serde::Deserialize)]
struct Email {
    to: String,
}

impl TaskInput for Email {
    const TYPE: &'static str = "send_email";
}

async fn send(email: Email, _: Context) -> Result<Value, TaskError> {
    if !email.to.contains('@') {
        return Err(TaskError::permanent("not an email address"));
    }
    Ok(json!({ "sent_to": email.to }))
}

type HttpResponse = Result<(StatusCode, Json<Value>), (StatusCode, String)>;

async fn submit(State(queue): State<Queue>, Json(email): Json<Email>) -> HttpResponse {
    let task = queue
        .task_of(&email)
        .map_err(|error| error_response(&error))?;
    // Submitting the form twice sends one mail.
    let task = task.idempotency_key(format!("welcome/{}", email.to));
    let submitted = task
        .submit()
        .await
        .map_err(|error| error_response(&error))?;
    let body = json!({ "id": submitted.task.id, "duplicate": submitted.duplicate });
    Ok((StatusCode::ACCEPTED, Json(body)))
}

async fn status(State(queue): State<Queue>, Path(id): Path<TaskId>) -> HttpResponse {
    let task = queue
        .get(id)
        .await
        .map_err(|error| error_response(&error))?;
    let output = queue.output(&task).await;
    let output = output.map_err(|error| error_response(&error))?;
    let body = json!({ "status": task.status, "output": output });
    Ok((StatusCode::OK, Json(body)))
}

/// Maps errors of the queue to HTTP.
fn error_response(error: &qo::Error) -> (StatusCode, String) {
    let status = match error.kind() {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::BadInput => StatusCode::BAD_REQUEST,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, error.to_string())
}

pub(crate) async fn run(serve: bool) -> Result<String, Box<dyn Error + Send + Sync>> {
    let queue = qo::connect("memory:").await?;
    let worker = Worker::builder(queue.clone()).handle::<Email>(send);
    let worker = worker.build()?;
    let routes = Router::new()
        .route("/emails", post(submit))
        .route("/emails/{id}", get(status))
        .with_state(queue.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    let serving = async {
        let served = axum::serve(listener, routes).await;
        served.map_err(|error| error.to_string())
    };
    if serve {
        tokio::select! {
            served = serving => served?,
            report = worker.run_until_signal() => println!("{:?}", report?),
        }
        return Ok(String::new());
    }
    let worker = worker.spawn();
    let response = tokio::select! {
        served = serving => {
            served?;
            return Err("the server stopped".into());
        }
        response = visit(address, &queue) => response?,
    };
    worker.stop().await?;
    Ok(response)
}

/// Sends the requests of a browser.
async fn visit(address: SocketAddr, queue: &Queue) -> Result<String, Box<dyn Error + Send + Sync>> {
    let posted = send_request(address, "POST", "/emails", r#"{"to":"ada@example.org"}"#).await?;
    let id = serde_json::from_str::<Value>(&posted)?["id"].clone();
    let id: TaskId = serde_json::from_value(id)?;
    queue.wait(id, Duration::from_secs(30)).await?;
    send_request(address, "GET", &format!("/emails/{id}"), "").await
}

/// Sends an HTTP request and returns the body of the response.
async fn send_request(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> Result<String, Box<dyn Error + Send + Sync>> {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let exchange = tokio::task::spawn_blocking(move || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(request.as_bytes())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    });
    let response = exchange.await??;
    let (head, body) = response
        .split_once("\r\n\r\n")
        .ok_or("incomplete response")?;
    let first = head.lines().next().unwrap_or_default();
    println!("{method} {path}: {first}: {body}");
    Ok(body.to_owned())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let serve = std::env::args().any(|argument| argument == "--serve");
    run(serve).await.map(drop)
}
