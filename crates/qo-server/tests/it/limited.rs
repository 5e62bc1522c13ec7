//! Tokens that are limited to queues and types: each route enforces the limits, or refuses such a token.

use std::time::Duration;

use qo_server::tokens::{NewToken, Scope, TokenLimits};
use qo_server::{Auth, documented};
use serde_json::{Value, json};

use crate::access::{filled, token};
use crate::support::{ApiRequest, TestServer, api, config, serve};

/// How long a test waits for an event.
const WAIT_MAX: Duration = Duration::from_secs(20);

fn limited(queues: &[&str], types: &[&str]) -> NewToken {
    token(&[Scope::Admin]).limited(TokenLimits {
        queues: queues.iter().map(|name| name.parse().unwrap()).collect(),
        types: types.iter().map(|name| name.parse().unwrap()).collect(),
    })
}

/// A server, a token for everything, and one for the type `send` in the queue `mail`.
struct Limited {
    server: TestServer,
    all: NewToken,
    mail: NewToken,
}

impl Limited {
    async fn serve() -> Self {
        let all = token(&[Scope::Admin]);
        let mail = limited(&["mail"], &["send"]);
        let mut config = config();
        config.auth = Auth::given(vec![all.record.clone(), mail.record.clone()]);
        let server = serve(config).await;
        Self { server, all, mail }
    }

    /// Submits a task with the token for everything, and returns its id.
    async fn task(&self, queue: &str, task_type: &str) -> String {
        let body = json!({"task_type": task_type, "queue": queue, "input": "secret"});
        let (_, task) = self.by_all(api("POST", "/v1/tasks").json(&body)).await;
        task["task"]["id"].as_str().unwrap().to_owned()
    }

    async fn by_all(&self, request: ApiRequest) -> (u16, Value) {
        self.server.reply(request.token(self.all.reveal())).await
    }

    async fn by_mail(&self, request: ApiRequest) -> (u16, Value) {
        self.server.reply(request.token(self.mail.reveal())).await
    }

    /// The stored objects, without hints, which are written in the background.
    async fn records(&self) -> Vec<(String, Vec<u8>)> {
        let mut objects = self.server.objects().await;
        objects.retain(|(key, _)| !key.starts_with("meta/"));
        objects
    }

    async fn refused(&self, request: ApiRequest) {
        let request = request.token(self.mail.reveal());
        let problem = self.server.refused(request, 403, "forbidden").await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("limited to queues mail and types send"),
            "{detail}"
        );
    }

    async fn hidden(&self, request: ApiRequest) {
        let request = request.token(self.mail.reveal());
        self.server.refused(request, 404, "not_found").await;
    }
}

#[tokio::test]
async fn routes_that_cannot_be_limited_refuse_the_token() {
    let test = Limited::serve().await;
    let enforcing = [
        "/v1/tasks",
        "/v1/claim",
        "/v1/outcomes",
        "/v1/bulk",
        "/v1/stats",
        "/v1/activity",
        "/v1/events",
        "/v1/pauses",
        "/v1/info",
    ];
    let mut refused = 0;
    for (method, path) in documented() {
        let is_public = path.starts_with("/docs")
            || matches!(
                path.as_str(),
                "/healthz" | "/readyz" | "/ping" | "/v1/openapi.json"
            );
        let is_enforced = enforcing.contains(&path.as_str())
            || path.starts_with("/v1/tasks/{id}")
            || (path == "/v1/workers/{worker}" && method != "GET");
        if is_public || is_enforced || method == "HEAD" {
            continue;
        }
        refused += 1;
        test.refused(api(&method, filled(&path)).json(&json!({})))
            .await;
    }
    assert!(refused > 25, "{refused}");
}

#[tokio::test]
async fn submits_and_claims_stay_within_the_limits() {
    let test = Limited::serve().await;
    let submit = |queue: &str, task_type: &str| {
        api("POST", "/v1/tasks").json(&json!({"task_type": task_type, "queue": queue}))
    };
    for (queue, task_type) in [("mail", "other"), ("other", "send"), ("default", "x")] {
        test.refused(submit(queue, task_type)).await;
    }
    assert_eq!(test.by_mail(submit("mail", "send")).await.0, 201);
    let many =
        json!([{"task_type": "send", "queue": "mail"}, {"task_type": "send", "queue": "other"}]);
    let (_, results) = test.by_mail(api("POST", "/v1/tasks").json(&many)).await;
    assert!(results[0]["task"]["id"].is_string());
    assert_eq!(results[1]["problem"]["code"], "forbidden");
    // An id or a key of another queue reveals nothing of its task.
    let foreign = test.task("other", "send").await;
    let same_id = json!({"task_type": "send", "queue": "mail", "id": foreign});
    test.refused(api("POST", "/v1/tasks").json(&same_id)).await;
    let (_, results) = test
        .by_mail(api("POST", "/v1/tasks").json(&json!([same_id])))
        .await;
    assert_eq!(results[0]["problem"]["code"], "forbidden");
    assert!(results[0]["task"].is_null());

    // A submit cannot replace the input of a task beyond the limits that holds its key.
    for scope in ["queue", "global"] {
        let replace = json!({
            "task_type": "send", "queue": "mail", "idempotency_key": "k", "idempotency_scope": scope, "idempotency_on_conflict": "replace",
        });
        test.refused(api("POST", "/v1/tasks").json(&replace)).await;
    }

    test.task("mail", "other").await;
    let claim = |names: Value| {
        let mut body = json!({"worker_id": "w", "max": 10});
        body.as_object_mut()
            .unwrap()
            .extend(names.as_object().unwrap().clone());
        api("POST", "/v1/claim").json(&body)
    };
    test.refused(claim(json!({"queues": ["mail", "other"]})))
        .await;
    test.refused(claim(json!({"queues": ["mail"], "types": ["other"]})))
        .await;
    // Without names it gets what it may have.
    let (_, claimed) = test.by_mail(claim(json!({"queues": []}))).await;
    let tasks = claimed["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 2, "{claimed}");
    assert!(
        tasks
            .iter()
            .all(|task| task["queue"] == "mail" && task["task_type"] == "send")
    );

    let worker = |queues: Value, types: Value| {
        api("PUT", "/v1/workers/w").json(&json!({
            "worker_id": "w", "started_at": "2026-01-01T00:00:00Z", "last_heartbeat": "2026-01-01T00:00:00Z",
            "queues": queues, "types": types,
        }))
    };
    test.refused(worker(json!([]), json!(["send"]))).await;
    test.refused(worker(json!(["mail"]), json!(["send", "other"])))
        .await;
    let own = worker(json!(["mail"]), json!(["send"]));
    assert_eq!(test.by_mail(own).await.0, 204);
}

#[tokio::test]
async fn tasks_beyond_the_limits_do_not_exist() {
    let test = Limited::serve().await;
    let foreign = [
        test.task("mail", "other").await,
        test.task("other", "send").await,
    ];
    let before = test.records().await;
    let lease = "650e8400-e29b-41d4-a716-446655440000";
    let body = json!({
        "lease_id": lease, "error": "x", "percent": 1, "delay_ms": 1,
    });
    for id in &foreign {
        for (method, path) in documented() {
            if !path.starts_with("/v1/tasks/{id}") {
                continue;
            }
            let path = path.replace("{id}", id);
            test.hidden(api(&method, &path).json(&body)).await;
            // Another spelling of the same id is no way around.
            let encoded = path.replacen('-', "%2d", 1);
            let request = api(&method, encoded).json(&body).token(test.mail.reveal());
            let (status, _) = test.server.reply(request).await;
            assert!(matches!(status, 400 | 404), "{method} {path}: {status}");
        }
        let release = json!([{"id": id, "release": {"lease_id": lease}}]);
        let (_, results) = test
            .by_mail(api("POST", "/v1/outcomes").json(&release))
            .await;
        assert_eq!(results[0]["problem"]["code"], "not_found");
        let bulk = json!({"operation": "cancel", "filter": {"ids": [id]}});
        test.hidden(api("POST", "/v1/bulk").json(&bulk)).await;
    }
    assert!(test.records().await == before, "nothing was changed");

    let own = test.task("mail", "send").await;
    let (_, task) = test.by_mail(api("GET", format!("/v1/tasks/{own}"))).await;
    assert_eq!(task["id"], json!(own));
    let (status, task) = test
        .by_mail(api("POST", format!("/v1/tasks/{own}/cancel")))
        .await;
    assert_eq!((status, &task["status"]), (200, &json!("cancelled")));
}

#[tokio::test]
async fn lists_bulk_operations_and_counts_show_only_what_is_within_the_limits() {
    let test = Limited::serve().await;
    for (queue, task_type) in [("mail", "send"), ("mail", "other"), ("other", "send")] {
        test.task(queue, task_type).await;
    }
    let (_, page) = test.by_mail(api("GET", "/v1/tasks")).await;
    let tasks = page["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 1);
    assert_eq!(
        (&tasks[0]["queue"], &tasks[0]["task_type"]),
        (&json!("mail"), &json!("send"))
    );
    test.refused(api("GET", "/v1/tasks?queue=other")).await;
    test.refused(api("GET", "/v1/tasks?task_type=other")).await;

    let bulk = |filter: Value| {
        let body = json!({"operation": "cancel", "dry_run": true, "filter": filter});
        api("POST", "/v1/bulk").json(&body)
    };
    let (status, counted) = test.by_mail(bulk(json!({}))).await;
    assert_eq!((status, &counted["matched"]), (200, &json!(1)), "{counted}");
    test.refused(bulk(json!({"queue": "other"}))).await;

    let series = |report: &Value| -> Vec<String> {
        let types = report["types"].as_array().unwrap().iter();
        let named = types.map(|of_type| format!("{}/{}", of_type["queue"], of_type["task_type"]));
        named.collect()
    };
    for path in ["/v1/activity", "/v1/activity?queue=mail&period=week"] {
        let (status, report) = test.by_mail(api("GET", path)).await;
        assert_eq!(status, 200, "{report}");
        assert_eq!(series(&report), [r#""mail"/"send""#]);
        let points = report["points"].as_array().unwrap().iter();
        let submitted = points.filter_map(|point| point["submitted"].as_u64());
        assert_eq!(submitted.sum::<u64>(), 1, "{report}");
    }
    for path in ["/v1/activity?queue=other", "/v1/activity?task_type=other"] {
        let (_, report) = test.by_mail(api("GET", path)).await;
        assert!(series(&report).is_empty(), "{report}");
        assert_eq!(report["points"], json!([]));
    }
    let (_, report) = test.by_all(api("GET", "/v1/activity")).await;
    assert_eq!(series(&report).len(), 3);

    let (_, stats) = test.by_mail(api("GET", "/v1/stats")).await;
    let queues = stats["queues"].as_object().unwrap();
    assert_eq!(queues.keys().collect::<Vec<_>>(), ["mail"]);
    assert_eq!(stats["queues"]["mail"]["types"], json!({"send": 1}));
    assert_eq!(stats["queues"]["mail"]["statuses"], json!({"pending": 1}));

    for path in [
        "/v1/queues/other/pause",
        "/v1/types/other/pause",
        "/v1/types/send/pause",
    ] {
        assert_eq!(test.by_all(api("POST", path)).await.0, 204);
    }
    let (_, pauses) = test.by_mail(api("GET", "/v1/pauses")).await;
    assert_eq!(pauses["queues"], json!({}));
    let types = pauses["types"].as_object().unwrap();
    assert_eq!(types.keys().collect::<Vec<_>>(), ["send"]);
    // A pause concerns more than this token is for.
    for path in ["/v1/queues/mail/resume", "/v1/types/send/resume"] {
        test.refused(api("POST", path)).await;
    }
}

#[tokio::test]
async fn a_token_with_several_queues_may_pause_them() {
    let both = limited(&["mail", "bulk"], &[]);
    let types = limited(&[], &["send"]);
    let mut config = config();
    config.auth = Auth::given(vec![both.record.clone(), types.record.clone()]);
    let server = serve(config).await;
    let reply = |request: ApiRequest, token: &NewToken| {
        let request = request.token(token.reveal());
        let server = &server;
        async move { server.reply(request).await }
    };
    for (path, token, expected) in [
        ("/v1/queues/bulk/pause", &both, 204),
        ("/v1/queues/other/pause", &both, 403),
        ("/v1/types/send/pause", &both, 403),
        ("/v1/types/send/pause", &types, 204),
        ("/v1/types/other/pause", &types, 403),
        ("/v1/queues/bulk/pause", &types, 403),
    ] {
        assert_eq!(reply(api("POST", path), token).await.0, expected, "{path}");
    }
}

/// A server with a task in each combination of three queues and three types, a token for all, and one for two queues and two types.
async fn serve_with_several() -> Limited {
    let all = token(&[Scope::Admin]);
    let mail = limited(&["bulk", "mail"], &["print", "send"]);
    let mut config = config();
    config.auth = Auth::given(vec![all.record.clone(), mail.record.clone()]);
    let server = serve(config).await;
    let test = Limited { server, all, mail };
    for queue in ["bulk", "mail", "other"] {
        for task_type in ["print", "send", "spy"] {
            test.task(queue, task_type).await;
        }
    }
    test
}

/// The queues and types of the tasks in a page.
fn kinds(page: &Value) -> Vec<String> {
    let tasks = page["tasks"].as_array().unwrap_or_else(|| panic!("{page}"));
    let kind = |task: &Value| {
        let name = |field: &str| task[field].as_str().unwrap().to_owned();
        format!("{}/{}", name("queue"), name("task_type"))
    };
    let mut kinds: Vec<_> = tasks.iter().map(kind).collect();
    kinds.sort();
    kinds
}

#[tokio::test]
async fn lists_of_a_token_with_several_queues_and_types_show_those_and_no_others() {
    let test = serve_with_several().await;
    let own = ["bulk/print", "bulk/send", "mail/print", "mail/send"];
    for (query, expected) in [
        ("", &own[..]),
        ("?sort=id", &own),
        ("?sort=queue", &own),
        ("?sort=type&reverse=true", &own),
        ("?text=secret", &own),
        ("?queue=bulk", &own[..2]),
        ("?task_type=send", &["bulk/send", "mail/send"]),
        ("?queue=mail&task_type=print", &["mail/print"]),
        ("?search=queue:mail,other", &own[2..]),
        ("?search=queue:other%20or%20type:spy", &[]),
        ("?search=-queue:mail", &own[..2]),
        (
            "?search=queue:o*,m*%20or%20type:spy%20or%20text:secret",
            &own,
        ),
        ("?search=queue:bulk&text=secret", &own[..2]),
        ("?status=failed,archived", &[]),
    ] {
        let (status, page) = test.by_mail(api("GET", format!("/v1/tasks{query}"))).await;
        assert_eq!((status, kinds(&page)), (200, owned(expected)), "{query}");
    }
    // Page by page, too.
    let mut found = Vec::new();
    let mut next = Some(String::new());
    while let Some(cursor) = next {
        let path = format!("/v1/tasks?limit=1&sort=id{cursor}");
        let (_, page) = test.by_mail(api("GET", path)).await;
        found.extend(kinds(&page));
        next = page["next"].as_str().map(|next| format!("&cursor={next}"));
    }
    found.sort();
    assert_eq!(found, owned(&own));
    for query in [
        "queue=other",
        "task_type=spy",
        "queue=mail&task_type=spy",
        "search=queue:other",
        "search=type:spy",
    ] {
        let request = api("GET", format!("/v1/tasks?{query}")).token(test.mail.reveal());
        test.server.refused(request, 403, "forbidden").await;
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn bulk_operations_of_a_token_with_several_queues_and_types_apply_to_those_and_no_others() {
    let test = serve_with_several().await;
    let bulk = |filter: Value, dry_run: bool| {
        let body = json!({"operation": "cancel", "dry_run": dry_run, "filter": filter});
        api("POST", "/v1/bulk").json(&body)
    };
    for (filter, expected) in [
        (json!({}), 4),
        (json!({"queue": "bulk"}), 2),
        (json!({"search": "queue:other or type:spy"}), 0),
        (json!({"search": "queue:mail,other -type:print"}), 1),
        (
            json!({"statuses": ["pending"], "search": "text:secret or queue:other"}),
            4,
        ),
    ] {
        let (status, counted) = test.by_mail(bulk(filter.clone(), true)).await;
        assert_eq!(
            (status, &counted["matched"]),
            (200, &json!(expected)),
            "{filter}: {counted}"
        );
    }
    for filter in [json!({"queue": "other"}), json!({"task_type": "spy"})] {
        let request = bulk(filter, true).token(test.mail.reveal());
        test.server.refused(request, 403, "forbidden").await;
    }
    let (status, report) = test.by_mail(bulk(json!({}), false)).await;
    assert_eq!((status, &report["done"]), (200, &json!(4)), "{report}");
    let (_, cancelled) = test.by_all(api("GET", "/v1/tasks?status=cancelled")).await;
    let (_, left) = test.by_all(api("GET", "/v1/tasks?status=pending")).await;
    assert_eq!(
        kinds(&cancelled),
        ["bulk/print", "bulk/send", "mail/print", "mail/send"]
    );
    assert_eq!(
        kinds(&left),
        [
            "bulk/spy",
            "mail/spy",
            "other/print",
            "other/send",
            "other/spy"
        ]
    );
}

#[tokio::test]
async fn events_beyond_the_limits_are_not_sent() {
    let test = Limited::serve().await;
    let listen = api("GET", "/v1/events").token(test.mail.reveal());
    let mut events = test.server.send(listen).await;
    assert_eq!(events.status(), 200);
    let foreign = [
        test.task("mail", "other").await,
        test.task("other", "send").await,
    ];
    let own = test.task("mail", "send").await;
    let mut text = String::new();
    while !text.contains(&own) {
        let chunk = tokio::time::timeout(WAIT_MAX, events.chunk()).await;
        text.push_str(std::str::from_utf8(&chunk.unwrap().unwrap().unwrap()).unwrap());
    }
    assert!(foreign.iter().all(|id| !text.contains(id)), "{text}");
}

#[tokio::test]
async fn tasks_are_moved_only_between_queues_within_the_limits() {
    let test = Limited::serve().await;
    let own = test.task("mail", "send").await;
    let foreign = test.task("other", "send").await;
    let redrive = |id: &str, to: &str| {
        api("POST", format!("/v1/tasks/{id}/redrive")).json(&json!({ "to": to }))
    };
    test.refused(redrive(&own, "other")).await;
    test.hidden(redrive(&foreign, "mail")).await;
    let bulk = json!({"operation": "redrive", "filter": {"ids": [own]}, "to": "other"});
    test.refused(api("POST", "/v1/bulk").json(&bulk)).await;
    // Without limits on queues it may move tasks of its type.
    assert_eq!(test.by_all(redrive(&foreign, "mail")).await.0, 200);
    let (status, moved) = test
        .by_mail(api("GET", format!("/v1/tasks/{foreign}")))
        .await;
    assert_eq!((status, &moved["queue"]), (200, &json!("mail")));
}

#[tokio::test]
async fn bulk_operations_in_the_background_are_for_tokens_without_limits() {
    let test = Limited::serve().await;
    let bulk = json!({"operation": "cancel", "filter": {"queue": "mail"}, "background": true});
    test.refused(api("POST", "/v1/bulk").json(&bulk)).await;
    assert_eq!(
        test.by_all(api("POST", "/v1/bulk").json(&bulk)).await.0,
        202
    );
    let (_, listed) = test.by_mail(api("GET", "/v1/bulk")).await;
    assert_eq!(listed["operations"], json!([]));
}
