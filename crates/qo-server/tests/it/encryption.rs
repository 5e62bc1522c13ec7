//! A server that is given a queue with keys still passes payloads on as they are stored.

use std::sync::Arc;

use qo::encryption::{Key, Keyring};
use qo::{ClaimRequest, DirectConfig, Queue};
use qo_server::Server;
use qo_store::runtime::TokioRuntime;

use crate::support::{config, engine_on, memory, plain_client};

#[tokio::test]
async fn no_route_decrypts() {
    let engine = Arc::new(engine_on(&memory(), DirectConfig::local()));
    let keyring = Keyring::new(Key::new("k1".parse().unwrap(), [1; 32]));
    let queue = Queue::new(engine, TokioRuntime::shared()).encrypted(keyring);
    let task = queue.task("t", &"horse").unwrap().submit().await.unwrap();
    let id = task.task.id;
    let claim = ClaimRequest::new("w".parse().unwrap(), vec!["t".parse().unwrap()]);
    let claimed = queue.claim(&claim).await.unwrap().remove(0);
    assert_eq!(queue.input(&claimed).await.unwrap().as_str(), "\"horse\"");
    let output = qo::Json::parse("\"horse\"").unwrap();
    let lease = claimed.lease_id.unwrap();
    queue.complete(id, lease, Some(output)).await.unwrap();

    let server = Server::bind(queue, config()).await.unwrap();
    let url = server.url();
    let running = tokio::task::spawn(server.run_until(std::future::pending()));
    for path in ["", "?wait_ms=1000", "/input", "/output"] {
        let response = plain_client()
            .get(format!("{url}/v1/tasks/{id}{path}"))
            .send();
        let text = response.await.unwrap().text().await.unwrap();
        assert!(text.contains("qo_encrypted"), "{path}: {text}");
        assert!(!text.contains("horse"), "{path}: {text}");
    }
    running.abort();
}
