//! Encryption by the client: what is stored, who can read it, and what a worker does that cannot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use qo::encryption::{EncryptionError, Key, Keyring, error_sealed_with, sealed_with};
use qo::engine::api::SubmitRequest;
use qo::testing::memory_queue;
use qo::{
    Context, Error, ErrorKind, Json, Payload, Queue, Status, Task, TaskError, TaskInput, Worker,
};

/// A text that must not be found in anything that is stored.
const SECRET: &str = "correct horse battery staple";

#[derive(serde::Serialize, serde::Deserialize)]
struct Letter {
    text: String,
    /// Whether the handler fails.
    fails: bool,
}

impl TaskInput for Letter {
    const TYPE: &'static str = "letter";
}

fn letter(fails: bool) -> Letter {
    Letter {
        text: SECRET.to_owned(),
        fails,
    }
}

/// Returns or reports the text of its input.
async fn read(letter: Letter, context: Context) -> Result<String, TaskError> {
    context.log(format!("opened: {}", letter.text));
    if letter.fails {
        return Err(TaskError::permanent(format_args!("lost: {}", letter.text)));
    }
    Ok(format!("read: {}", letter.text))
}

fn key(name: &str, byte: u8) -> Key {
    Key::new(name.parse().unwrap(), [byte; 32])
}

fn keyring() -> Keyring {
    Keyring::new(key("k1", 1))
}

fn worker(queue: &Queue) -> Worker {
    let worker = Worker::builder(queue.clone()).handle::<Letter>(read);
    worker.build().unwrap()
}

/// Checks that the stored record of a task reveals nothing but the name of the key.
async fn assert_hidden(queue: &Queue, id: qo::TaskId) {
    let stored = queue.engine().get(id).await.unwrap();
    let text = serde_json::to_string(&stored).unwrap();
    assert!(!text.contains("horse"), "{text}");
    let input = queue.engine().input(&stored).await.unwrap();
    assert_eq!(sealed_with(&input).as_deref(), Some("k1"));
    if let Some(output) = queue.engine().output(&stored).await.unwrap() {
        assert_eq!(sealed_with(&output).as_deref(), Some("k1"));
    }
    for log in stored.logs() {
        assert_eq!(error_sealed_with(&log.text), Some("k1"));
    }
    if let Some(error) = &stored.last_error {
        assert_eq!(error_sealed_with(error), Some("k1"));
    }
}

async fn submit_letter(queue: &Queue, fails: bool) -> Task {
    let task = queue.task_of(&letter(fails)).unwrap();
    task.submit().await.unwrap().task
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_engine_stores_ciphertext_and_clients_with_the_key_read_it() {
    for url in ["memory:", "memory:?engine=json", "memory:?engine=slate"] {
        let queue = qo::connect(url).await.unwrap().encrypted(keyring());
        let good = submit_letter(&queue, false).await;
        let bad = submit_letter(&queue, true).await;
        assert_eq!(
            queue
                .input(&good)
                .await
                .unwrap()
                .to_value::<Letter>()
                .unwrap()
                .text,
            SECRET
        );
        let report = worker(&queue).drain().await.unwrap();
        assert_eq!((report.completed, report.failed), (1, 1), "{url}");

        assert_hidden(&queue, good.id).await;
        assert_hidden(&queue, bad.id).await;
        let done = queue.get(good.id).await.unwrap();
        let output = queue.output(&done).await.unwrap().unwrap();
        assert_eq!(output.as_str(), format!("\"read: {SECRET}\""), "{url}");
        let failed = queue.get(bad.id).await.unwrap();
        for task in [&done, &failed] {
            assert_eq!(*task.logs()[0].text, format!("opened: {SECRET}\n"), "{url}");
        }
        let error = format!("lost: {SECRET}");
        assert_eq!(failed.last_error.as_deref(), Some(error.as_str()), "{url}");
        let events = queue.history(bad.id).await.unwrap();
        assert_eq!(
            events.last().unwrap().error.as_deref(),
            Some(error.as_str())
        );
        let page = queue
            .list(&qo::TaskFilter::default(), None, 10)
            .await
            .unwrap();
        let inline = |task: &qo::Task| matches!(task.input(), Payload::Inline(json) if json.as_str().contains(SECRET));
        assert!(page.tasks.iter().all(inline), "{url}");
        queue.close().await;
    }
}

#[tokio::test]
async fn large_payloads_in_objects_of_their_own_are_encrypted() {
    let (queue, _clock) = memory_queue().unwrap();
    let queue = queue.encrypted(keyring());
    let text = SECRET.repeat(10_000);
    let input = Letter {
        text: text.clone(),
        fails: false,
    };
    let task = queue.task_of(&input).unwrap().submit().await.unwrap().task;
    assert!(matches!(task.input(), Payload::Stored(_)));
    assert_eq!(worker(&queue).drain().await.unwrap().completed, 1);
    assert_hidden(&queue, task.id).await;
    let done = queue.get(task.id).await.unwrap();
    let output = queue.output(&done).await.unwrap().unwrap();
    assert_eq!(
        output.to_value::<String>().unwrap(),
        format!("read: {text}")
    );
}

#[tokio::test]
async fn a_worker_without_the_key_leaves_the_task_to_others() {
    let (plain, clock) = memory_queue().unwrap();
    let queue = plain.clone().encrypted(keyring());
    let task = queue.task_of(&letter(false)).unwrap().retries(0);
    let id = task.submit().await.unwrap().task.id;
    let other = plain.clone().encrypted(Keyring::new(key("k2", 2)));
    for (attempt, without_key) in [(1, &plain), (2, &other), (3, &plain)] {
        let report = worker(without_key).drain().await.unwrap();
        assert_eq!((report.snoozed, report.attempts()), (1, 1));
        let waiting = queue.get(id).await.unwrap();
        assert_eq!(
            (waiting.status, waiting.attempt),
            (Status::Pending, attempt)
        );
        assert_eq!(waiting.retry_count, 0, "no retry is used");
        assert_eq!(
            worker(without_key).drain().await.unwrap().attempts(),
            0,
            "not at once"
        );
        clock.advance(Duration::from_secs(10 * u64::from(attempt)));
    }
    let stored = plain.get(id).await.unwrap();
    let error = plain.input(&stored).await.unwrap_err();
    assert_eq!(
        error,
        Error::Encryption(EncryptionError::UnknownKey {
            role: "input",
            key: "k1".parse().unwrap()
        })
    );
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert_eq!(worker(&queue).drain().await.unwrap().completed, 1);
}

#[tokio::test]
async fn another_key_of_the_same_name_fails_the_attempt_in_clear_and_is_retried() {
    let (plain, clock) = memory_queue().unwrap();
    let queue = plain.clone().encrypted(keyring());
    let task = queue.task_of(&letter(false)).unwrap().retries(1);
    let id = task.submit().await.unwrap().task.id;
    let wrong = plain.clone().encrypted(Keyring::new(key("k1", 99)));
    assert_eq!(worker(&wrong).drain().await.unwrap().retried, 1);
    let stored = plain.get(id).await.unwrap();
    let error = stored.last_error.clone().unwrap();
    assert!(error.contains("cannot be decrypted with key k1"), "{error}");
    assert_eq!(
        wrong.input(&stored).await.unwrap_err().kind(),
        ErrorKind::Damaged
    );
    clock.advance(Duration::from_secs(5));
    assert_eq!(worker(&queue).drain().await.unwrap().completed, 1);
}

#[tokio::test]
async fn the_input_of_another_task_is_refused_and_no_handler_sees_it() {
    let (plain, _clock) = memory_queue().unwrap();
    let queue = plain.clone().encrypted(keyring());
    let victim = queue
        .task_of(&letter(false))
        .unwrap()
        .delay(Duration::from_hours(1));
    let victim = victim.submit().await.unwrap().task;
    // Whoever can write to the store puts the ciphertext into a task of their own.
    let stored = plain.engine().get(victim.id).await.unwrap();
    let input = plain.engine().input(&stored).await.unwrap();
    let request = SubmitRequest {
        max_retries: Some(0),
        ..SubmitRequest::new("letter".parse().unwrap(), input)
    };
    let moved = plain.engine().submit(request).await.unwrap().task;
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let worker = Worker::builder(queue.clone())
        .handle::<Letter>(move |_: Letter, _: Context| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<(), TaskError>(()) }
        })
        .build()
        .unwrap();
    let report = worker.drain().await.unwrap();
    assert_eq!((report.failed, report.attempts()), (1, 1));
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    let failed = queue.get(moved.id).await.unwrap();
    let error = failed.last_error.unwrap();
    assert!(error.contains("belong to another task"), "{error}");
}

#[tokio::test]
async fn keys_are_rotated_without_a_gap() {
    let (plain, _clock) = memory_queue().unwrap();
    let old = plain.clone().encrypted(keyring());
    let before = submit_letter(&old, false).await;
    let both = Keyring::new(key("k2", 2)).with(key("k1", 1)).unwrap();
    let rotated = plain.clone().encrypted(both);
    let after = submit_letter(&rotated, false).await;
    let stored = plain.engine().get(after.id).await.unwrap();
    let input = plain.engine().input(&stored).await.unwrap();
    assert_eq!(sealed_with(&input).as_deref(), Some("k2"));
    assert_eq!(worker(&rotated).drain().await.unwrap().completed, 2);
    let names = rotated.encryption_keys();
    let names: Vec<_> = names.iter().map(qo::encryption::KeyId::as_str).collect();
    assert_eq!(names, ["k2", "k1"]);
    // Only the output was written with the new key.
    let done = old.get(before.id).await.unwrap();
    assert!(old.input(&done).await.is_ok());
    assert!(old.output(&done).await.is_err());
}

#[tokio::test]
async fn concurrent_submits_with_one_idempotency_key_make_one_readable_task() {
    for round in 0..20 {
        let (queue, _clock) = memory_queue().unwrap();
        let queue = queue.encrypted(keyring());
        let submits = (0..8).map(|_| async {
            let task = queue.task_of(&letter(false)).unwrap();
            task.idempotency_key(format!("key/{round}")).submit().await
        });
        let submitted = join_all(submits).await;
        let ids: Vec<_> = submitted.into_iter().map(|one| one.unwrap().task).collect();
        assert!(ids.iter().all(|task| task.id == ids[0].id));
        for task in &ids {
            assert!(queue.input(task).await.is_ok());
        }
        assert_eq!(worker(&queue).drain().await.unwrap().completed, 1);
        assert_hidden(&queue, ids[0].id).await;
    }
}

#[tokio::test]
async fn a_replay_keeps_the_input_readable() {
    let (queue, clock) = memory_queue().unwrap();
    let queue = queue.encrypted(keyring());
    let task = submit_letter(&queue, true).await;
    assert_eq!(worker(&queue).drain().await.unwrap().failed, 1);
    queue.replay(task.id).await.unwrap();
    // Until then the engine does not list again what it has just found empty.
    clock.advance(Duration::from_secs(10));
    assert_eq!(worker(&queue).drain().await.unwrap().failed, 1);
    let error = queue.get(task.id).await.unwrap().last_error.unwrap();
    assert_eq!(&*error, format!("lost: {SECRET}"));
}

#[tokio::test]
async fn bad_submits_are_refused_one_by_one_and_write_nothing() {
    let (plain, _clock) = memory_queue().unwrap();
    let queue = plain.clone().encrypted(keyring());
    let sealed = Json::parse(r#"{"qo_encrypted":1,"key":"k1"}"#).unwrap();
    let requests = vec![
        queue.task_with("letter", sealed.clone()).build().unwrap(),
        queue.task_of(&letter(false)).unwrap().build().unwrap(),
        queue.task("wasi", &1).unwrap().build().unwrap(),
        queue.task_of(&letter(false)).unwrap().build().unwrap(),
    ];
    let results = queue.submit_many(requests).await;
    let refused = |error| Err(Error::Encryption(error));
    assert_eq!(results.len(), 4);
    assert_eq!(
        results[0],
        refused(EncryptionError::AlreadyEncrypted { role: "input" })
    );
    assert!(results[1].is_ok() && results[3].is_ok());
    assert_eq!(results[2], refused(EncryptionError::RefersToBlobs));
    let request = SubmitRequest::new("letter".parse().unwrap(), Json::null());
    let with_blobs = queue.submit_with_blobs(request, &[]).await;
    assert_eq!(with_blobs, refused(EncryptionError::RefersToBlobs));
    let page = plain
        .list(&qo::TaskFilter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(page.tasks.len(), 2);
}

#[tokio::test]
async fn tasks_in_clear_run_next_to_encrypted_ones() {
    let (plain, _clock) = memory_queue().unwrap();
    let queue = plain.clone().encrypted(keyring());
    let clear = submit_letter(&plain, false).await;
    submit_letter(&queue, false).await;
    assert_eq!(worker(&queue).drain().await.unwrap().completed, 2);
    // A worker with a key encrypts everything that it writes.
    let done = plain.get(clear.id).await.unwrap();
    assert!(plain.input(&done).await.is_ok());
    assert_eq!(
        plain.output(&done).await.unwrap_err().kind(),
        ErrorKind::Denied
    );
}
