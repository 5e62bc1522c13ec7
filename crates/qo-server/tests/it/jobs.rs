//! The job routes, played as the README of queuey-queue describes them, over plain HTTP.

use std::sync::Arc;
use std::time::Duration;

use qo::blob::address_of;
use qo::{DirectConfig, Engine, Status};
use qo_fixtures::until;
use serde_json::{Value, json};

use crate::support::{TestServer, api, config, engine_on, json_on, memory, serve, serve_engine};

async fn upload(server: &TestServer, bytes: &'static str) -> String {
    let (status, put) = server.reply(api("PUT", "/blobs").body(bytes)).await;
    assert!(status == 200 || status == 201, "{put}");
    put["address"].as_str().unwrap().to_owned()
}

async fn create(server: &TestServer, body: &Value) -> Value {
    let (status, job) = server.reply(api("POST", "/jobs/create").json(body)).await;
    assert_eq!(status, 201, "{job}");
    job
}

async fn claim(server: &TestServer, runner: &str) -> (u16, Value) {
    let body = json!({ "runner_id": runner });
    server.reply(api("POST", "/jobs/claim").json(&body)).await
}

fn path(job: &Value, rest: &str) -> String {
    format!("/jobs/{}{rest}", job["job_id"].as_str().unwrap())
}

/// The fields of a job and their values are those of the README.
#[tokio::test]
async fn a_job_lives_as_the_readme_says() {
    let server = serve(config()).await;
    assert_eq!(server.reply(api("GET", "/ping")).await.0, 200);
    let binary = upload(&server, "a program").await;
    let input = upload(&server, "its input").await;
    assert_eq!(claim(&server, "r").await, (204, Value::Null));

    // POST /jobs/create: pending, nobody has it, times in milliseconds.
    let body = json!({ "binary_addr": binary, "input_addr": input });
    let job = create(&server, &body).await;
    let mut fields: Vec<_> = job
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    fields.sort_unstable();
    let mut expected = [
        "job_id",
        "binary_addr",
        "input_addr",
        "created_at",
        "updated_at",
        "completed_at",
        "status",
        "run_attempts",
        "runner_id",
        "output_addr",
    ];
    expected.sort_unstable();
    assert_eq!(fields, expected);
    assert_eq!(job["binary_addr"], binary);
    assert_eq!(job["input_addr"], input);
    assert_eq!(job["status"], "pending");
    assert_eq!(job["run_attempts"], 0);
    assert!(job["completed_at"].is_null() && job["runner_id"].is_null());
    let created_at = job["created_at"].as_i64().unwrap();
    assert!(
        (1_600_000_000_000..4_000_000_000_000).contains(&created_at),
        "{job}"
    );
    assert!(job["updated_at"].as_i64().unwrap() >= created_at);

    // GET /jobs/:id, also with an id in upper case.
    assert_eq!(
        server.reply(api("GET", path(&job, ""))).await,
        (200, job.clone())
    );
    let upper = format!("/jobs/{}", job["job_id"].as_str().unwrap().to_uppercase());
    assert_eq!(server.reply(api("GET", upper)).await, (200, job.clone()));

    // A pending job can be neither tickled nor completed.
    let tickle = || api("POST", path(&job, "/tickle"));
    server.refused(tickle(), 400, "job_not_active").await;
    let completed = json!({ "status": "completed" });
    let complete = || api("POST", path(&job, "/complete"));
    server
        .refused(complete().json(&completed), 400, "job_not_active")
        .await;

    // POST /jobs/claim: active, one attempt, the runner.
    let runner = "A54FAF6A-8C15-4BC0-8C1D-49EBA31AD550";
    let (status, claimed) = claim(&server, runner).await;
    assert_eq!(status, 200);
    assert_eq!(claimed["job_id"], job["job_id"]);
    assert_eq!(claimed["status"], "active");
    assert_eq!(claimed["run_attempts"], 1);
    assert_eq!(claimed["runner_id"], runner);
    assert!(claimed["lease_id"].is_string());
    assert_eq!(claim(&server, "another").await.0, 204);

    // POST /jobs/:id/tickle: later than before.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let (status, tickled) = server.reply(tickle()).await;
    assert_eq!(status, 200, "{tickled}");
    assert!(tickled["updated_at"].as_i64() > claimed["updated_at"].as_i64());
    assert_eq!(tickled["status"], "active");

    // POST /jobs/:id/complete: the output, the end, the runner that ended it.
    let output = upload(&server, "the output").await;
    let body = json!({ "status": "completed", "output_addr": output });
    let (status, done) = server.reply(complete().json(&body)).await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(done["status"], "completed");
    assert_eq!(done["output_addr"], output);
    assert_eq!(done["runner_id"], runner);
    assert_eq!(done["run_attempts"], 1);
    assert!(done["completed_at"].as_i64().unwrap() >= created_at);
    assert_eq!(server.reply(api("GET", path(&job, ""))).await.1, done);

    // It is over.
    server.refused(tickle(), 400, "job_not_active").await;
    server
        .refused(complete().json(&body), 400, "job_not_active")
        .await;
    let absent = "/jobs/F49B1EBD-EDF4-4839-9EDB-EF3082D32C14";
    for request in [
        api("GET", absent),
        api("POST", format!("{absent}/tickle")),
        api("POST", format!("{absent}/complete")).json(&body),
        api("GET", "/jobs/nonsense"),
    ] {
        server.refused(request, 404, "job_not_found").await;
    }

    // Underneath it is a task.
    let id = job["job_id"].as_str().unwrap();
    let (_, task) = server.reply(api("GET", format!("/v1/tasks/{id}"))).await;
    assert_eq!(task["task_type"], "wasi");
    assert_eq!(task["status"], "completed");
    assert_eq!(task["output"]["output_addr"], output);
}

async fn is_claimed_in_order(server: &TestServer) {
    let binary = upload(server, "a program").await;
    let mut created = Vec::new();
    for _ in 0..12 {
        created.push(create(server, &json!({ "binary_addr": binary })).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for (number, job) in created.iter().enumerate() {
        // Several runners that do not know of each other.
        let (_, claimed) = claim(server, &format!("r-{}", number % 3)).await;
        assert_eq!(claimed["job_id"], job["job_id"], "{number}");
    }
    assert_eq!(claim(server, "r").await.0, 204);
}

#[tokio::test]
async fn the_oldest_job_is_claimed_first() {
    let store = memory();
    let engine = json_on(&store);
    is_claimed_in_order(&serve_engine(store, Arc::new(engine), config()).await).await;
}

#[tokio::test]
async fn the_oldest_job_is_claimed_first_in_direct_mode() {
    is_claimed_in_order(&serve(config()).await).await;
}

#[tokio::test]
async fn a_failed_job_stays_failed() {
    let server = serve(config()).await;
    let binary = upload(&server, "a program").await;
    let job = create(&server, &json!({ "binary_addr": binary })).await;
    assert!(job["input_addr"].is_null());
    claim(&server, "r").await;
    let output = upload(&server, "partial output").await;
    let body =
        json!({ "status": "failed", "output_addr": output, "exit_code": 3, "error": "no luck" });
    let (status, failed) = server
        .reply(api("POST", path(&job, "/complete")).json(&body))
        .await;
    assert_eq!(status, 200, "{failed}");
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["output_addr"], output);
    assert_eq!(failed["exit_code"], 3);
    assert_eq!(failed["error"], "no luck");
    assert_eq!(failed["runner_id"], "r");
    assert_eq!(claim(&server, "r").await.0, 204);
}

#[tokio::test]
async fn an_abandoned_job_is_pending_again_until_its_attempts_are_used_up() {
    let store = memory();
    let engine = engine_on(&store, DirectConfig::local());
    let mut config = config();
    config.jobs.abandoned_age = Duration::from_millis(1);
    config.jobs.attempts_max = 3;
    let shared: Arc<dyn Engine> = Arc::new(engine.clone());
    let server = serve_engine(store, shared, config).await;
    let binary = upload(&server, "a program").await;
    let job = create(&server, &json!({ "binary_addr": binary })).await;
    let read = async || server.reply(api("GET", path(&job, ""))).await.1;
    for attempt in 1..=3 {
        let mut claimed = (204, Value::Null);
        let mut lease = Value::Null;
        while claimed.0 == 204 {
            claimed = claim(&server, &format!("runner-{attempt}")).await;
        }
        assert_eq!(claimed.1["run_attempts"], attempt);
        std::mem::swap(&mut lease, &mut claimed.1["lease_id"]);
        until("the job is abandoned", async || {
            engine.check_leases().await.unwrap();
            (read().await["status"] != "active").then_some(())
        })
        .await;
        let abandoned = read().await;
        let expected = if attempt < 3 { "pending" } else { "failed" };
        assert_eq!(abandoned["status"], expected, "{abandoned}");
        if attempt < 3 {
            assert!(abandoned["runner_id"].is_null());
        }
        // The runner that was abandoned is refused, whether it presents its lease or not.
        let late = json!({ "lease_id": lease });
        let tickle = api("POST", path(&job, "/tickle")).json(&late);
        server.refused(tickle, 400, "job_not_active").await;
    }
    assert_eq!(claim(&server, "r").await.0, 204);
    let id = job["job_id"].as_str().unwrap().parse().unwrap();
    assert_eq!(engine.get(id).await.unwrap().status, Status::Failed);
}

#[tokio::test]
async fn a_stale_runner_that_presents_its_lease_is_refused() {
    let store = memory();
    let engine = engine_on(&store, DirectConfig::local());
    let shared: Arc<dyn Engine> = Arc::new(engine.clone());
    let server = serve_engine(store, shared, config()).await;
    let binary = upload(&server, "a program").await;
    let job = create(&server, &json!({ "binary_addr": binary })).await;
    let (_, first) = claim(&server, "first").await;
    let id = job["job_id"].as_str().unwrap().parse().unwrap();
    let lease = first["lease_id"].as_str().unwrap().parse().unwrap();
    engine.release(id, lease).await.unwrap();
    let (_, second) = claim(&server, "second").await;
    assert_eq!(second["run_attempts"], 2);
    let stale = json!({ "status": "completed", "lease_id": first["lease_id"] });
    let complete = api("POST", path(&job, "/complete")).json(&stale);
    server.refused(complete, 409, "lease_lost").await;
    let tickle = api("POST", path(&job, "/tickle")).json(&json!({ "lease_id": first["lease_id"] }));
    server.refused(tickle, 409, "lease_lost").await;
    let current = json!({ "status": "completed", "lease_id": second["lease_id"] });
    let (status, done) = server
        .reply(api("POST", path(&job, "/complete")).json(&current))
        .await;
    assert_eq!((status, &done["status"]), (200, &json!("completed")));
    assert!(done["output_addr"].is_null());
}

#[tokio::test]
async fn invalid_jobs_are_refused_and_nothing_is_stored() {
    let server = serve(config()).await;
    let absent = address_of(b"absent").to_string();
    let create = |body: &Value| api("POST", "/jobs/create").json(body);
    let missing = server
        .refused(
            create(&json!({ "binary_addr": absent })),
            422,
            "missing_blob",
        )
        .await;
    assert_eq!(missing["address"], absent);
    for body in [
        json!({}),
        json!({ "binary_addr": "59ae214373240a255f453cc2fa8d26ab60d6b532" }),
        json!({ "binary_addr": absent, "colour": "red" }),
        json!({ "binary_addr": null }),
    ] {
        server.refused(create(&body), 400, "bad_body").await;
    }
    assert!(server.objects().await.is_empty());
    let binary = upload(&server, "a program").await;
    let body = json!({ "binary_addr": binary, "input_addr": absent });
    server.refused(create(&body), 422, "missing_blob").await;
    for body in [
        json!({}),
        json!({ "runner_id": "a b" }),
        json!({ "runner_id": 7 }),
    ] {
        server
            .refused(api("POST", "/jobs/claim").json(&body), 400, "bad_body")
            .await;
    }
    let (_, list) = server.reply(api("GET", "/v1/tasks")).await;
    assert_eq!(list["tasks"], json!([]));
}

/// Tasks of the type of jobs that are no jobs: a claim sets them aside and returns the job behind them, twice if it is repeated.
#[tokio::test]
async fn tasks_that_are_no_jobs_are_set_aside() {
    let server = serve(config()).await;
    let mut strangers = Vec::new();
    for input in [json!({}), json!("x")] {
        let body = json!({ "task_type": "wasi", "input": input });
        let (status, task) = server.reply(api("POST", "/v1/tasks").json(&body)).await;
        assert_eq!(status, 201, "{task}");
        strangers.push(task["task"]["id"].as_str().unwrap().to_owned());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let binary = upload(&server, "a program").await;
    let job = create(&server, &json!({ "binary_addr": binary })).await;
    for _ in 0..2 {
        let request = api("POST", "/jobs/claim").json(&json!({ "runner_id": "r" }));
        let (status, claimed) = server.reply(request.header("x-request-id", "once")).await;
        assert_eq!((status, &claimed["job_id"]), (200, &job["job_id"]));
        assert_eq!(claimed["run_attempts"], 1);
    }
    assert_eq!(claim(&server, "r").await.0, 204);
    for id in strangers {
        let (_, task) = server.reply(api("GET", format!("/v1/tasks/{id}"))).await;
        assert_eq!(task["status"], "failed");
        let error = task["last_error"].as_str().unwrap();
        assert!(error.contains("not a WASI job"), "{error}");
        server
            .refused(api("GET", format!("/jobs/{id}")), 404, "job_not_found")
            .await;
    }
}

/// A job whose input cannot be read at the moment of its claim is tried again, and not failed for ever.
#[tokio::test]
async fn a_job_whose_input_cannot_be_read_is_tried_again() {
    let server = serve(config()).await;
    let binary = upload(&server, "a program").await;
    // Too long to be part of the task's record.
    let body = json!({ "binary_addr": binary, "args": ["x".repeat(100_000)] });
    let job = create(&server, &body).await;
    let objects = server.objects().await.into_iter();
    let mut payloads = objects.filter(|(_, bytes)| bytes.len() > 100_000);
    let (key, kept) = payloads.next().unwrap();
    server
        .client
        .delete_many(std::slice::from_ref(&key))
        .await
        .unwrap();
    let (status, problem) = claim(&server, "r").await;
    assert!(status >= 400, "{problem}");
    server.client.put(&key, kept.into()).await.unwrap();
    let claimed = until("the job is claimed", async || {
        let (status, claimed) = claim(&server, "r").await;
        (status == 200).then_some(claimed)
    })
    .await;
    assert_eq!(claimed["job_id"], job["job_id"]);
    assert_eq!(claimed["run_attempts"], 2);
}
