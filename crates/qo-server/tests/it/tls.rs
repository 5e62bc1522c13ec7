//! HTTPS.

use qo::Engine;
use qo_remote::RemoteConfig;
use qo_remote::RemoteEngine;
use qo_server::{ServeError, Server, Tls};
use qo_store::runtime::TokioRuntime;

use crate::support::{config, engine_on, memory, serve};

fn certificate() -> Tls {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    Tls {
        certificate_pem: made.cert.pem().into_bytes(),
        key_pem: made.signing_key.serialize_pem().into_bytes(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_served_over_tls() {
    let tls = certificate();
    let mut config = config();
    config.tls = Some(tls.clone());
    let server = serve(config).await;
    assert!(server.url.starts_with("https://"));

    let mut trusting = RemoteConfig::parse(&server.url).unwrap();
    trusting.ca_pem = Some(tls.certificate_pem.clone());
    let engine = RemoteEngine::new(trusting, TokioRuntime::shared()).unwrap();
    assert_eq!(engine.check().await.unwrap().service, "qo");
    let request = qo::SubmitRequest::new("t".parse().unwrap(), qo::Json::null());
    let task = engine.submit(request).await.unwrap().task;
    assert_eq!(server.engine.get(task.id).await.unwrap(), task);

    let certificate = reqwest::Certificate::from_pem(&tls.certificate_pem).unwrap();
    let http = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([certificate])
        .build()
        .unwrap();
    let response = http
        .get(format!("{}/healthz", server.url))
        .send()
        .await
        .unwrap();
    assert_eq!(
        (response.status().as_u16(), response.version()),
        (200, reqwest::Version::HTTP_2)
    );
    let policy = response.headers()["strict-transport-security"].to_str();
    assert_eq!(policy.unwrap(), "max-age=31536000");

    // A client that does not trust the certificate does not connect.
    let other = certificate_of_another();
    let mut wary = RemoteConfig::parse(&server.url).unwrap();
    wary.ca_pem = Some(other);
    wary.retry_for = std::time::Duration::from_millis(100);
    let engine = RemoteEngine::new(wary, TokioRuntime::shared()).unwrap();
    assert!(engine.check().await.is_err());
}

fn certificate_of_another() -> Vec<u8> {
    certificate().certificate_pem
}

#[tokio::test]
async fn a_connection_without_a_handshake_is_closed() {
    use tokio::io::AsyncReadExt;
    let mut config = config();
    config.tls = Some(certificate());
    config.limits.handshake_timeout = std::time::Duration::from_millis(300);
    let server = serve(config).await;
    let mut connection = tokio::net::TcpStream::connect(server.authority())
        .await
        .unwrap();
    let mut answer = Vec::new();
    let read = connection.read_to_end(&mut answer);
    tokio::time::timeout(crate::support::WAIT_MAX, read)
        .await
        .unwrap()
        .ok();
    assert!(answer.is_empty());
}

#[tokio::test]
async fn an_invalid_certificate_is_named_in_the_error() {
    for tls in [
        Tls {
            certificate_pem: b"nonsense".to_vec(),
            key_pem: b"nonsense".to_vec(),
        },
        Tls {
            certificate_pem: certificate().certificate_pem,
            key_pem: Vec::new(),
        },
        Tls {
            certificate_pem: certificate().certificate_pem,
            key_pem: certificate().key_pem,
        },
    ] {
        let mut config = config();
        config.tls = Some(tls);
        let engine = engine_on(&memory(), qo::DirectConfig::local());
        let queue = qo::Queue::new(std::sync::Arc::new(engine), TokioRuntime::shared());
        let error = Server::bind(queue, config).await.unwrap_err();
        assert!(matches!(error, ServeError::Certificate(_)), "{error}");
    }
}
