//! Encrypted inputs of schedules: what is stored, who can read it, and what processes without the key do.

use qo::encryption::{EncryptionError, Key, Keyring, sealed_with};
use qo::engine::api::{Document, DocumentQuery, SubmitRequest};
use qo::model::DocumentKind;
use qo::schedule::{ScheduleSpec, TaskTemplate};
use qo::testing::memory_queue;
use qo::{Context, Error, Json, Queue, TaskError, TaskId, TaskInput, Worker};

/// A text that must not be found in anything that is stored.
const SECRET: &str = "correct horse battery staple";
const NAME: &str = "nightly";

#[derive(serde::Serialize, serde::Deserialize)]
struct Report(String);

impl TaskInput for Report {
    const TYPE: &'static str = "report";
}

fn key(name: &str, byte: u8) -> Key {
    Key::new(name.parse().unwrap(), [byte; 32])
}

fn keyring() -> Keyring {
    Keyring::new(key("k1", 1))
}

fn spec_of(task_type: &str, input: Json) -> ScheduleSpec {
    let task = TaskTemplate {
        input: Some(input),
        ..TaskTemplate::new(task_type.parse().unwrap())
    };
    ScheduleSpec::every_ms(60_000, task)
}

fn spec() -> ScheduleSpec {
    spec_of("report", Json::from_value(&SECRET).unwrap())
}

async fn stored(queue: &Queue) -> Document {
    let query = DocumentQuery::all(DocumentKind::Schedules);
    queue.engine().documents(&query).await.unwrap().remove(0)
}

fn shown_input(spec: &ScheduleSpec) -> &Json {
    spec.task.input.as_ref().unwrap()
}

/// Runs what is due, and returns how many tasks completed and failed. A task completes if its handler reads the secret.
async fn run(queue: &Queue) -> (u64, u64) {
    let worker = Worker::builder(queue.clone()).handle::<Report>(|report: Report, _: Context| {
        let result = match report.0.as_str() {
            SECRET => Ok(report.0),
            _ => Err(TaskError::permanent("another text")),
        };
        async { result }
    });
    let report = worker.build().unwrap().drain().await.unwrap();
    (report.completed, report.failed)
}

async fn stored_input(queue: &Queue, id: TaskId) -> Json {
    let task = queue.engine().get(id).await.unwrap();
    queue.engine().input(&task).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_has_ciphertext_and_any_process_may_fire_it() {
    for url in ["memory:", "memory:?engine=json", "memory:?engine=slate"] {
        let plain = qo::connect(url).await.unwrap();
        let queue = plain.clone().encrypted(keyring());
        let added = queue.schedules().add(NAME, spec()).await.unwrap();
        assert_eq!(added.spec, spec(), "{url}: shown as it was defined");
        let document = stored(&plain).await;
        assert!(!document.body.as_str().contains("horse"), "{url}");

        // A process without the key shows the name of the key, and passes the ciphertext on.
        let listed = plain.schedules().list().await.unwrap().remove(0);
        assert_eq!(
            sealed_with(shown_input(&listed.spec)).as_deref(),
            Some("k1")
        );
        let triggered = plain.schedules().trigger(NAME).await.unwrap();
        let input = stored_input(&plain, triggered).await;
        assert_eq!(sealed_with(&input).as_deref(), Some("k1"), "{url}");
        assert_eq!(run(&queue).await, (1, 0), "{url}");
        let done = queue.get(triggered).await.unwrap();
        assert_eq!(queue.input(&done).await.unwrap(), *shown_input(&spec()));

        for shown in [
            queue.schedules().get(NAME).await.unwrap(),
            queue.schedules().list().await.unwrap().remove(0),
            queue.schedules().pause(NAME).await.unwrap(),
            queue.schedules().resume(NAME).await.unwrap(),
        ] {
            assert_eq!(shown.spec, spec(), "{url}");
        }
        queue.close().await;
    }
}

#[tokio::test]
async fn the_same_definition_is_written_again_only_to_encrypt_it_with_the_first_key() {
    let (plain, _clock) = memory_queue().unwrap();
    // Stored by a client without a key.
    let first = plain.schedules().put(NAME, spec()).await.unwrap();
    let queue = plain.clone().encrypted(keyring());
    queue.schedules().put(NAME, spec()).await.unwrap();
    let sealed = stored(&plain).await;
    assert!(!sealed.body.as_str().contains("horse"));
    queue.schedules().put(NAME, spec()).await.unwrap();
    queue.schedules().add(NAME, spec()).await.unwrap();
    assert_eq!(stored(&plain).await.version, sealed.version);
    let other = ScheduleSpec {
        jitter_ms: 1,
        ..spec()
    };
    let error = queue.schedules().add(NAME, other).await.unwrap_err();
    assert!(matches!(error, Error::ScheduleExists { .. }), "{error}");

    let both = Keyring::new(key("k2", 2)).with(key("k1", 1)).unwrap();
    let rotated = plain.clone().encrypted(both);
    let shown = rotated.schedules().put(NAME, spec()).await.unwrap();
    assert_eq!(
        (shown.created_at, shown.next),
        (first.created_at, first.next)
    );
    let listed = plain.schedules().get(NAME).await.unwrap();
    assert_eq!(
        sealed_with(shown_input(&listed.spec)).as_deref(),
        Some("k2")
    );
    plain.schedules().trigger(NAME).await.unwrap();
    assert_eq!(run(&rotated).await, (1, 0));
}

#[tokio::test]
async fn the_input_opens_for_tasks_of_its_type_only() {
    let (plain, _clock) = memory_queue().unwrap();
    let queue = plain.clone().encrypted(keyring());
    queue.schedules().put(NAME, spec()).await.unwrap();
    let listed = plain.schedules().get(NAME).await.unwrap();
    let sealed = shown_input(&listed.spec).clone();
    // Whoever can write to the store moves the ciphertext to a task of another type, or into another schedule.
    let request = SubmitRequest::new("delete".parse().unwrap(), sealed.clone());
    let moved = plain.engine().submit(request).await.unwrap().task;
    let refused = Err(Error::Encryption(EncryptionError::Refused {
        role: "input",
        key: "k1".parse().unwrap(),
    }));
    assert_eq!(queue.input(&moved).await, refused);
    let renamed = sealed.as_str().replace(NAME, "other");
    let request = SubmitRequest::new("report".parse().unwrap(), Json::parse(renamed).unwrap());
    let moved = plain.engine().submit(request).await.unwrap().task;
    assert_eq!(queue.input(&moved).await, refused);
    // The input of a task is not that of a schedule.
    let task = queue.task("report", &SECRET).unwrap().submit().await;
    let input = stored_input(&plain, task.unwrap().task.id).await;
    let spec = spec_of("report", input);
    plain.schedules().put(NAME, spec).await.unwrap();
    let task = plain.schedules().trigger(NAME).await.unwrap();
    let task = plain.get(task).await.unwrap();
    assert_eq!(queue.input(&task).await, refused);
}

#[tokio::test]
async fn bad_definitions_are_refused_and_write_nothing() {
    let (plain, _clock) = memory_queue().unwrap();
    let queue = plain.clone().encrypted(keyring());
    let sealed = Json::parse(r#"{"qo_encrypted":1,"key":"k1"}"#).unwrap();
    for (spec, expected) in [
        (
            spec_of("report", sealed),
            EncryptionError::AlreadyEncrypted { role: "input" },
        ),
        (
            spec_of("wasi", Json::null()),
            EncryptionError::RefersToBlobs,
        ),
    ] {
        let error = queue.schedules().put(NAME, spec).await.unwrap_err();
        assert_eq!(error, Error::Encryption(expected));
    }
    // The limit applies to what is stored.
    let large = spec_of("report", Json::from_value(&"x".repeat(7_000)).unwrap());
    let error = queue.schedules().put(NAME, large.clone()).await;
    assert!(matches!(error, Err(Error::Schedule(_))), "{error:?}");
    assert!(plain.schedules().list().await.unwrap().is_empty());
    plain.schedules().put(NAME, large).await.unwrap();
}
