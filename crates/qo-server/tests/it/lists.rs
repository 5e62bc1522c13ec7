//! Lists with selected fields, compressed responses, and bulk operations in steps.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use qo::{DirectConfig, Engine, Json, SubmitRequest};
use serde_json::{Value, json};

use crate::support::{TestServer, api, config, engine_on, memory, serve, serve_engine, slate_on};

async fn submit_many(server: &TestServer, count: usize, input_bytes: usize) -> Vec<String> {
    let input = "x".repeat(input_bytes);
    let bodies = vec![json!({"task_type": "t", "input": input, "omit_input": true}); count];
    let (status, results) = server
        .reply(api("POST", "/v1/tasks").json(&json!(bodies)))
        .await;
    assert_eq!(status, 200);
    let results = results.as_array().unwrap().iter();
    results
        .map(|result| result["task"]["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_list_with_selected_fields_leaves_the_inputs_out() {
    let server = serve(config()).await;
    submit_many(&server, 100, 40_000).await;
    let path = "/v1/tasks?limit=100&fields=id,status,created_at,last_error";
    let response = server.send(api("GET", path)).await;
    let text = response.text().await.unwrap();
    assert!(text.len() < 20_000, "{} bytes", text.len());
    let page: Value = serde_json::from_str(&text).unwrap();
    let tasks = page["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 100, "the page is not cut short");
    for task in tasks {
        let names: Vec<_> = task.as_object().unwrap().keys().collect();
        assert_eq!(names, ["created_at", "id", "status"]);
    }
    let problem = server
        .refused(api("GET", "/v1/tasks?fields=id,stauts"), 400, "bad_request")
        .await;
    assert!(problem["detail"].as_str().unwrap().contains("stauts"));
}

#[tokio::test]
async fn a_list_ends_before_a_time() {
    let server = serve(config()).await;
    let ids = submit_many(&server, 1, 1).await;
    let (_, task) = server
        .reply(api("GET", format!("/v1/tasks/{}", ids[0])))
        .await;
    let created_at = task["created_at"].as_str().unwrap();
    let count = async |condition: String| {
        let (status, page) = server
            .reply(api("GET", format!("/v1/tasks?{condition}")))
            .await;
        assert_eq!(status, 200, "{page}");
        page["tasks"].as_array().unwrap().len()
    };
    assert_eq!(count(format!("until={created_at}")).await, 0);
    assert_eq!(count(format!("since={created_at}")).await, 1);
    assert_eq!(count("until=2099-01-01T00:00:00Z".to_owned()).await, 1);
}

#[tokio::test]
async fn responses_are_compressed_for_clients_that_accept_it() {
    let server = serve(config()).await;
    submit_many(&server, 50, 4_000).await;
    let plain = server.send(api("GET", "/v1/tasks")).await;
    assert_eq!(plain.headers()["vary"], "accept-encoding");
    assert!(!plain.headers().contains_key("content-encoding"));
    let plain = plain.bytes().await.unwrap();
    let request = api("GET", "/v1/tasks").header("accept-encoding", "br, gzip");
    let packed = server.send(request).await;
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    let packed = packed.bytes().await.unwrap();
    assert!(packed.len() * 10 < plain.len(), "{} bytes", packed.len());
    let mut text = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(&packed[..]);
    std::io::Read::read_to_end(&mut decoder, &mut text).unwrap();
    assert_eq!(text, plain);

    let small = api("GET", "/healthz").header("accept-encoding", "gzip");
    let small = server.send(small).await;
    assert!(!small.headers().contains_key("content-encoding"));
    // The dashboard is revalidated by the tag of the compressed response, too.
    let page = api("GET", "/ui/js/app.js").header("accept-encoding", "gzip");
    let page = server.send(page).await;
    assert_eq!(page.headers()["content-encoding"], "gzip");
    let tag = page.headers()["etag"].to_str().unwrap().to_owned();
    let again = api("GET", "/ui/js/app.js").header("if-none-match", tag);
    assert_eq!(server.send(again).await.status(), 304);
}

#[tokio::test]
async fn a_bulk_operation_proceeds_in_steps() {
    let server = serve(config()).await;
    submit_many(&server, 25, 1).await;
    let step = json!({"operation": "cancel", "filter": {"task_type": "t"}, "limit": 10});
    let mut steps = Vec::new();
    loop {
        let (status, report) = server.reply(api("POST", "/v1/bulk").json(&step)).await;
        assert_eq!(status, 200, "{report}");
        steps.push(report["done"].as_u64().unwrap());
        if report["more"] != true {
            break;
        }
    }
    assert_eq!(steps, [10, 10, 5]);
    for limit in [0, 100_001] {
        let bad = json!({"operation": "cancel", "filter": {}, "limit": limit});
        let bad = api("POST", "/v1/bulk").json(&bad);
        server.refused(bad, 400, "bad_request").await;
    }
}

#[tokio::test]
async fn a_bulk_operation_on_ids_changes_these_tasks_only() {
    let server = serve(config()).await;
    let ids = submit_many(&server, 4, 1).await;
    let missing = "00000000-0000-4000-8000-000000000000";
    let bulk = |body: Value| api("POST", "/v1/bulk").json(&body);
    let chosen = json!({"ids": [ids[0], ids[1], missing]});
    let dry = json!({"operation": "cancel", "filter": chosen, "dry_run": true});
    let (_, counted) = server.reply(bulk(dry)).await;
    assert_eq!(counted["matched"], 2, "{counted}");
    let (status, report) = server
        .reply(bulk(json!({"operation": "cancel", "filter": chosen})))
        .await;
    assert_eq!(status, 200, "{report}");
    assert_eq!((&report["done"], &report["failed"]), (&json!(2), &json!(1)));
    assert_eq!(report["failures"][0]["id"], missing);
    let (_, left) = server.reply(api("GET", "/v1/tasks?status=pending")).await;
    assert_eq!(left["tasks"].as_array().unwrap().len(), 2);

    let both = json!({"operation": "cancel", "filter": {"ids": [ids[2]], "queue": "default"}});
    server.refused(bulk(both), 400, "bad_request").await;
    let many = json!({"operation": "cancel", "filter": {"ids": vec![&ids[2]; 1_001]}});
    server.refused(bulk(many), 400, "bad_request").await;
    let misspelt = json!({"operation": "cancel", "filter": {"tpye": "t"}});
    server.refused(bulk(misspelt), 400, "bad_body").await;
}

#[tokio::test]
async fn the_newest_tasks_come_first_and_old_cursors_still_work() {
    let server = serve(config()).await;
    let mut newest: Vec<String> = Vec::new();
    for _ in 0..7 {
        newest.insert(0, submit_many(&server, 1, 1).await.remove(0));
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let mut by_id = newest.clone();
    by_id.sort();
    let list = async |query: &str| -> (Vec<String>, Option<String>) {
        let (status, page) = server.reply(api("GET", format!("/v1/tasks?{query}"))).await;
        assert_eq!(status, 200, "{page}");
        let tasks = page["tasks"].as_array().unwrap().iter();
        let ids = tasks.map(|task| task["id"].as_str().unwrap().to_owned());
        (ids.collect(), page["next"].as_str().map(str::to_owned))
    };
    let (first, next) = list("limit=3").await;
    assert_eq!(first, newest[..3]);
    // The cursor has the order.
    let (rest, _) = list(&format!("limit=10&cursor={}", next.unwrap())).await;
    assert_eq!(rest, newest[3..]);
    assert_eq!(list("sort=newest").await.0, newest);
    let (first, next) = list("sort=id&limit=3").await;
    assert_eq!(first, by_id[..3]);
    // A client of an earlier version sends the cursor without a sort.
    let next = next.unwrap();
    assert!(!next.starts_with("newest"), "{next}");
    let (rest, _) = list(&format!("cursor={}", next.replace('/', "%2F"))).await;
    assert_eq!(rest, by_id[3..]);
    let mixed = api(
        "GET",
        format!("/v1/tasks?sort=newest&cursor={}", next.replace('/', "%2F")),
    );
    server.refused(mixed, 400, "bad_request").await;
    server
        .refused(api("GET", "/v1/tasks?sort=oldest"), 400, "bad_request")
        .await;
}

#[tokio::test]
async fn texts_are_found_in_inputs_and_errors() {
    let server = serve(config()).await;
    let body = json!({"task_type": "t", "input": {"to": "Ada Lovelace & Söhne"}});
    server.reply(api("POST", "/v1/tasks").json(&body)).await;
    submit_many(&server, 3, 10).await;
    let count = async |text: &str| {
        let (status, page) = server
            .reply(api("GET", format!("/v1/tasks?text={text}")))
            .await;
        assert_eq!(status, 200, "{page}");
        page["tasks"].as_array().unwrap().len()
    };
    assert_eq!(count("lovelace").await, 1);
    assert_eq!(count("S%C3%96HNE").await, 1);
    assert_eq!(count("xxx").await, 3);
    assert_eq!(count("nobody").await, 0);
    let long = api("GET", format!("/v1/tasks?text={}", "x".repeat(257)));
    for request in [api("GET", "/v1/tasks?text="), long] {
        server.refused(request, 400, "bad_request").await;
    }
}

#[tokio::test]
async fn lists_are_sorted_by_columns_among_the_newest_tasks() {
    let server = serve(config()).await;
    let tasks: Vec<_> = (0..30)
        .map(|n| json!({ "task_type": format!("t{:02}", (n * 7) % 30), "queue": format!("q{}", n % 3), "delay_ms": 1_000 * ((n * 11) % 30 + 1), "priority": n % 10 }))
        .collect();
    server
        .reply(api("POST", "/v1/tasks").json(&json!(tasks)))
        .await;
    let sorted = async |query: &str, field: &str| {
        let (status, page) = server.reply(api("GET", format!("/v1/tasks?{query}"))).await;
        assert_eq!(status, 200, "{query}: {page}");
        assert_eq!(
            page["sorted"],
            json!({ "among": 30, "complete": true }),
            "{query}"
        );
        assert_eq!(page["next"], serde_json::Value::Null);
        let tasks = page["tasks"].as_array().unwrap();
        tasks
            .iter()
            .map(|task| task[field].clone())
            .collect::<Vec<_>>()
    };
    let types = sorted("sort=type&limit=3&fields=id,task_type", "task_type").await;
    assert_eq!(types, ["t00", "t01", "t02"]);
    let types = sorted("sort=type&reverse=true&limit=2", "task_type").await;
    assert_eq!(types, ["t29", "t28"]);
    let priorities = sorted("sort=priority&limit=4", "priority").await;
    assert_eq!(priorities, [0, 0, 0, 1]);
    let queues = sorted("sort=queue&reverse=true&limit=1", "queue").await;
    assert_eq!(queues, ["q2"]);
    let mut due = sorted("sort=due", "available_at").await;
    assert_eq!(due.len(), 30);
    let found = due.clone();
    due.sort_by_key(ToString::to_string);
    assert_eq!(found, due);
    for bad in [
        "sort=due&cursor=x",
        "reverse=true",
        "sort=newest&reverse=true",
        "sort=colour",
    ] {
        let response = server.send(api("GET", format!("/v1/tasks?{bad}"))).await;
        assert_eq!(response.status(), 400, "{bad}");
    }
}

/// More tasks match than are sorted: the list says so.
#[tokio::test]
async fn a_sort_by_a_column_is_bounded() {
    let server = serve(config()).await;
    for _ in 0..2 {
        let tasks: Vec<_> = (0..600).map(|_| json!({ "task_type": "t" })).collect();
        server
            .reply(api("POST", "/v1/tasks").json(&json!(tasks)))
            .await;
    }
    let request = api("GET", "/v1/tasks?sort=due&limit=5&fields=id");
    let (_, page) = server.reply(request).await;
    assert_eq!(page["sorted"], json!({ "among": 1_000, "complete": false }));
    assert_eq!(page["tasks"].as_array().unwrap().len(), 5);
}

/// The path of a list with a search.
fn searched(search: &str) -> String {
    let mut path = "/v1/tasks?search=".to_owned();
    for byte in search.bytes() {
        write!(path, "%{byte:02X}").unwrap();
    }
    path
}

/// A search in a list and in a bulk operation selects the same tasks, and one that is not understood selects none.
#[tokio::test]
async fn searches_have_alternatives_exclusions_beginnings_and_times() {
    let server = serve(config()).await;
    let bodies = json!([
        {"task_type": "mail.send", "queue": "fast", "omit_input": true},
        {"task_type": "mail.send", "queue": "bulk", "omit_input": true},
        {"task_type": "report", "queue": "bulk", "tags": ["vip"], "input": "no route"},
        {"task_type": "sms", "queue": "fast", "delay_ms": 3_600_000},
    ]);
    let (_, results) = server.reply(api("POST", "/v1/tasks").json(&bodies)).await;
    let ids: Vec<_> = (0..4)
        .map(|index| results[index]["task"]["id"].clone())
        .collect();
    for (search, expected) in [
        ("type:mail*,sms -queue:bulk", vec![0, 3]),
        ("type:mail* queue:bulk or tag:vip", vec![1, 2]),
        ("status:scheduled", vec![3]),
        ("-status:scheduled", vec![0, 1, 2]),
        ("text:\"NO ROUTE\"", vec![2]),
        ("since:1h", vec![0, 1, 2, 3]),
        ("until:1h", vec![]),
        ("status:completed", vec![]),
    ] {
        let request = api("GET", format!("{}&sort=id", searched(search)));
        let (status, page) = server.reply(request).await;
        assert_eq!(status, 200, "{search}: {page}");
        let mut found: Vec<_> = page["tasks"].as_array().unwrap().iter().collect();
        found.sort_by_key(|task| ids.iter().position(|id| *id == task["id"]));
        let found: Vec<_> = found.iter().map(|task| task["id"].clone()).collect();
        let expected: Vec<_> = expected.iter().map(|index| ids[*index].clone()).collect();
        assert_eq!(found, expected, "{search}");
        let body = json!({"operation": "cancel", "filter": {"search": search}, "dry_run": true});
        let (_, report) = server.reply(api("POST", "/v1/bulk").json(&body)).await;
        assert_eq!(report["matched"], expected.len(), "{search}: {report}");
    }
    let path = format!("{}&sort=type", searched("-queue:bulk"));
    let (_, page) = server.reply(api("GET", path)).await;
    let types: Vec<_> = page["tasks"].as_array().unwrap().iter().collect();
    let types: Vec<_> = types.iter().map(|task| &task["task_type"]).collect();
    assert_eq!(types, ["mail.send", "sms"]);
    let long = "a".repeat(1_025);
    for wrong in [
        "",
        "tpye:x",
        "oops",
        "-text:x",
        "type:a type:b",
        "type:",
        &long,
    ] {
        let request = api("GET", searched(wrong));
        server.refused(request, 400, "bad_request").await;
        let body = json!({"operation": "cancel", "filter": {"search": wrong}});
        let request = api("POST", "/v1/bulk").json(&body);
        server.refused(request, 400, "bad_request").await;
    }
    let body = json!({"operation": "cancel", "filter": {"search": "type:mail* -queue:bulk"}});
    let (_, report) = server.reply(api("POST", "/v1/bulk").json(&body)).await;
    assert_eq!(report["done"], 1, "{report}");
    let (_, task) = server
        .reply(api(
            "GET",
            format!("/v1/tasks/{}", ids[0].as_str().unwrap()),
        ))
        .await;
    assert_eq!(task["status"], "cancelled");
}

/// There is no index of texts. A request reads a bounded number of tasks, says how many, and the next one continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_for_a_rare_text_continues_from_page_to_page() {
    const OTHERS: usize = 10_200;
    const EXAMINED_MAX: u64 = 10_000;
    for mode in ["direct", "slate"] {
        let store = memory();
        let engine: Arc<dyn Engine> = match mode {
            "direct" => Arc::new(engine_on(&store, DirectConfig::local())),
            _ => Arc::new(slate_on(&store).await),
        };
        // The oldest task is found last.
        let rare = Json::from_value(&"a needle").unwrap();
        let rare = SubmitRequest::new("t".parse().unwrap(), rare);
        let rare = engine.submit(rare).await.unwrap().task.id.to_string();
        tokio::time::sleep(Duration::from_millis(20)).await;
        for _ in 0..OTHERS.div_ceil(1_000) {
            let hay = SubmitRequest::new("t".parse().unwrap(), Json::null());
            for result in engine.submit_many(vec![hay; 1_000]).await {
                result.unwrap();
            }
        }
        let server = serve_engine(store, engine, config()).await;
        let mut path = "/v1/tasks?text=needle".to_owned();
        let mut pages: Vec<u64> = Vec::new();
        let found = loop {
            let (status, page) = server.reply(api("GET", path)).await;
            assert_eq!(status, 200, "{mode}: {page}");
            pages.push(page["examined"].as_u64().unwrap());
            let tasks = page["tasks"].as_array().unwrap();
            if !tasks.is_empty() {
                break tasks.clone();
            }
            assert!(pages.len() < 20, "{mode}: {pages:?}");
            let next = page["next"].as_str().unwrap();
            path = format!("/v1/tasks?text=needle&cursor={next}");
        };
        assert_eq!((found.len(), &found[0]["id"]), (1, &json!(rare)), "{mode}");
        assert!(pages.len() > 1, "{mode}: {pages:?}");
        assert!(pages.iter().all(|examined| *examined <= EXAMINED_MAX));
        assert!(
            pages.iter().sum::<u64>() > EXAMINED_MAX,
            "{mode}: {pages:?}"
        );
    }
}
