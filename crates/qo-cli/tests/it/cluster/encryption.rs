//! Encryption in cluster mode: no node stores or sees the plaintext.

use std::fs;
use std::path::Path;

use qo::encryption::{Key, Keyring};
use qo::{Context, TaskError, TaskInput, Worker};

use super::nodes::Cluster;

const SECRET: &str = "correct horse battery staple";

#[derive(serde::Serialize, serde::Deserialize)]
struct Letter(String);

impl TaskInput for Letter {
    const TYPE: &'static str = "letter";
}

async fn read(letter: Letter, _: Context) -> Result<String, TaskError> {
    Ok(letter.0)
}

/// Whether a file below the directory contains the text.
fn contains(directory: &Path, text: &str) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return contains(&path, text);
        }
        // A node may delete a file of its log meanwhile.
        let bytes = fs::read(path).unwrap_or_default();
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_stores_the_plaintext() {
    let cluster = Cluster::start();
    let keyring = Keyring::new(Key::generate("k1".parse().unwrap()).unwrap());
    let plain = cluster.queue().await;
    let queue = plain.clone().encrypted(keyring);
    let task = queue.task_of(&Letter(SECRET.to_owned())).unwrap();
    let id = task.idempotency_key("once").submit().await.unwrap().task.id;
    let worker = Worker::builder(queue.clone()).handle::<Letter>(read);
    let report = worker.build().unwrap().drain().await.unwrap();
    assert_eq!(report.completed, 1);
    let done = queue.get(id).await.unwrap();
    let output = queue.output(&done).await.unwrap().unwrap();
    assert_eq!(output.as_str(), format!("\"{SECRET}\""));
    assert!(plain.output(&done).await.is_ok(), "it was decrypted before");
    let stored = plain.get(id).await.unwrap();
    assert!(plain.output(&stored).await.is_err());
    for node in 1..=3 {
        assert!(!contains(&cluster.data(node), "horse"), "node {node}");
    }
    assert!(contains(&cluster.data(cluster.leader()), "qo_encrypted"));
}
