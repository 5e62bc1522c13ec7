//! The OpenAPI document, generated from the routes and their types.

use qo_remote::wire::activity::Period;
use qo_remote::wire::{Problem, Sort, schema};
use serde_json::{Value, json};
use utoipa::OpenApi;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, Response, ResponseBuilder};

use crate::middleware::Access;
use crate::openapi_rules;
use crate::routes::{
    self, blobs, bulk, cluster, events, health, jobs, limits, list, operation, pauses, query,
    queues, reference, schedules, settings, tasks, tokens, webhooks, work,
};
use crate::tokens::Scope;

/// The reference to the schema of any JSON.
const ANY_JSON: &str = "#/components/schemas/AnyJson";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "qo HTTP API",
        description = "A task queue over HTTP. Errors are problem details (RFC 9457) whose `code` identifies the condition. Every response \
                       has the headers `X-Request-Id` and `Qo-Time`, the queue's time.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    paths(
        tasks::submit, list::list, tasks::read, tasks::input, tasks::output, tasks::history, tasks::logs, tasks::versions, tasks::waits_for,
        operation::cancel, operation::run_now, operation::replay, operation::redrive, operation::archive, operation::unarchive, operation::purge,
        queues::list, queues::read, queues::put, pauses::pause, pauses::resume, pauses::pause_type, pauses::resume_type, pauses::list,
        bulk::bulk, bulk::list, bulk::progress, bulk::cancel,
        work::claim, operation::complete, operation::fail, operation::release, operation::renew, operation::snooze,
        operation::progress, operation::outcomes, work::heartbeat, work::deregister, work::quiet, work::stop, work::resume,
        tokens::list, tokens::create, tokens::revoke,
        cluster::status, cluster::log, cluster::add, cluster::promote, cluster::remove, cluster::snapshot,
        blobs::put, blobs::put_at, blobs::get, blobs::head, blobs::touch, blobs::list, blobs::delete, blobs::collect,
        jobs::create, jobs::read, jobs::claim, jobs::tickle, jobs::complete, jobs::ping,
        settings::read, settings::change,
        schedules::list, schedules::read, schedules::put, schedules::remove, schedules::pause, schedules::resume,
        schedules::trigger, schedules::backfill,
        limits::list, limits::read, limits::put, limits::remove,
        webhooks::list, webhooks::read, webhooks::put, webhooks::remove, webhooks::test,
        query::info, query::stats, query::activity, query::workers, events::events,
        reference::document, reference::page, reference::script, reference::style,
        health::health, health::ready, health::metrics,
    ),
    components(schemas(Problem, schema::ConditionFacts, Sort, Period)),
    tags(
        (name = "tasks", description = "Submit and read tasks"),
        (name = "work", description = "For workers"),
        (name = "blobs", description = "Bytes that are stored by content"),
        (name = "jobs", description = "WASI jobs, with the routes of queuey-queue"),
        (name = "operate", description = "For operators"),
        (name = "schedules", description = "Tasks that are submitted again and again"),
        (name = "limits", description = "How many tasks run at once, and start within a time window"),
        (name = "webhooks", description = "Who is notified when tasks end"),
        (name = "inspect", description = "Queues, workers, events, the server"),
        (name = "run", description = "For running the server")
    )
)]
struct Document;

/// The document of the API.
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "A token from `qo token create`. A server without tokens, which serves only loopback addresses, needs none.",
        ))
        .build();
    if let Some(components) = document.components.as_mut() {
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
    for route in routes::table() {
        let operation =
            document
                .paths
                .paths
                .get_mut(route.path)
                .and_then(|item| match route.method {
                    http::Method::GET => item.get.as_mut(),
                    http::Method::POST => item.post.as_mut(),
                    http::Method::PUT => item.put.as_mut(),
                    http::Method::DELETE => item.delete.as_mut(),
                    http::Method::HEAD => item.head.as_mut(),
                    _ => None,
                });
        if let Some(operation) = operation {
            finish(operation, route.access);
        }
    }
    document
}

/// The document as it is served. The generator describes some things wrongly:
///
/// - It allows `null` in addition to any JSON as one of two forms, which forbids `null`, because `null` has both.
/// - It invents names for the formats of unsigned numbers, and says nothing about their bounds.
pub(crate) fn document_json() -> Value {
    let mut text = serde_json::to_value(document()).unwrap_or_else(|_| json!({}));
    mend(&mut text);
    openapi_rules::add(&mut text);
    text
}

fn mend(value: &mut Value) {
    match value {
        Value::Array(parts) => parts.iter_mut().for_each(mend),
        Value::Object(fields) => {
            let format = fields.get("format").and_then(Value::as_str);
            let unsigned =
                format.and_then(|name| name.strip_prefix("u-int").or(name.strip_prefix("uint")));
            if let Some(bits) = unsigned.map(str::parse::<u32>) {
                fields.remove("format");
                if let Ok(bits @ 1..64) = bits {
                    let most = fields.entry("maximum".to_owned());
                    most.or_insert_with(|| json!((1_u64 << bits) - 1));
                }
            }
            let is_null = |part: &Value| part["type"] == "null";
            let is_any = |part: &Value| part["$ref"] == ANY_JSON;
            let forms = fields.get("oneOf").and_then(Value::as_array);
            let allows_any =
                |forms: &Vec<Value>| forms.iter().any(is_null) && forms.iter().any(is_any);
            if forms.is_some_and(allows_any) {
                fields.remove("oneOf");
                fields.insert("$ref".to_owned(), Value::from(ANY_JSON));
            }
            fields.values_mut().for_each(mend);
        }
        _ => {}
    }
}

/// Adds the access rule and the error responses, which every route has.
fn finish(operation: &mut Operation, access: Access) {
    let (description, requirement) = match access {
        Access::Public => ("no token needed".to_owned(), None),
        Access::AnyToken => ("any token".to_owned(), Some(Vec::new())),
        Access::AnyOf(scopes) => {
            let names: Vec<_> = scopes.iter().map(ToString::to_string).collect();
            let description = if scopes.contains(&Scope::Admin) {
                "scope admin".to_owned()
            } else {
                format!("scope {}, or admin", names.join(" or "))
            };
            (description, Some(names))
        }
    };
    operation.security = Some(match requirement {
        None => vec![SecurityRequirement::default()],
        // In OpenAPI 3.1 the scopes of a bearer scheme are informative only.
        Some(names) => vec![SecurityRequirement::new("bearer", names)],
    });
    let extensions = ExtensionsBuilder::new()
        .add("x-qo-access", Value::from(description))
        .build();
    operation
        .extensions
        .get_or_insert_default()
        .merge(extensions);
    for (status, description) in [
        ("4XX", "The request was rejected and changed nothing"),
        (
            "5XX",
            "The request failed; `code` tells whether it may have taken effect",
        ),
    ] {
        let responses = &mut operation.responses.responses;
        responses
            .entry(status.to_owned())
            .or_insert_with(|| RefOr::T(problem(description)));
    }
}

fn problem(description: &str) -> Response {
    let content = Content::new(Some(Ref::from_schema_name("Problem")));
    ResponseBuilder::new()
        .description(description)
        .content("application/problem+json", content)
        .build()
}

/// The methods and paths of the document.
pub fn documented() -> Vec<(String, String)> {
    let text = document_json();
    let mut operations = Vec::new();
    if let Some(paths) = text.get("paths").and_then(Value::as_object) {
        for (path, item) in paths {
            for method in item.as_object().into_iter().flat_map(|item| item.keys()) {
                operations.push((method.to_uppercase(), path.clone()));
            }
        }
    }
    operations.sort();
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_and_the_routes_match() {
        let mut served: Vec<_> = routes::table()
            .iter()
            .map(|route| (route.method.to_string(), route.path.to_owned()))
            .collect();
        served.sort();
        assert_eq!(documented(), served);
    }

    #[test]
    fn every_operation_has_its_access_rule_and_error_responses() {
        let text = serde_json::to_value(document()).unwrap();
        assert_eq!(text["openapi"], "3.1.0");
        for (method, path) in documented() {
            let operation = &text["paths"][&path][method.to_lowercase()];
            assert!(operation["x-qo-access"].is_string(), "{method} {path}");
            assert!(operation["summary"].is_string(), "{method} {path}");
            assert!(operation["responses"]["4XX"].is_object(), "{method} {path}");
        }
    }

    #[test]
    fn no_schema_forbids_null_by_allowing_it_twice_or_has_an_unknown_format() {
        let text = document_json();
        let input = &text["components"]["schemas"]["SubmitBody"]["properties"]["input"];
        assert_eq!(input["$ref"], ANY_JSON, "{input}");
        assert!(input.get("oneOf").is_none());
        let delay = &text["components"]["schemas"]["SubmitBody"]["properties"]["delay_ms"];
        let limit = qo_core::limits::SUBMIT_DELAY_MAX_MS;
        assert_eq!(delay["maximum"], json!(limit), "{delay}");
        assert_eq!(delay["minimum"], 0);
        let whole = text.to_string();
        assert!(
            !whole.contains("u-int") && !whole.contains("uint"),
            "{whole}"
        );
    }

    #[test]
    fn every_reference_resolves() {
        fn walk(value: &Value, references: &mut Vec<String>) {
            match value {
                Value::Object(fields) => {
                    for (name, value) in fields {
                        if let ("$ref", Some(text)) = (name.as_str(), value.as_str()) {
                            references.push(text.to_owned());
                        }
                        walk(value, references);
                    }
                }
                Value::Array(parts) => parts.iter().for_each(|part| walk(part, references)),
                _ => {}
            }
        }
        let text = document_json();
        let mut references = Vec::new();
        walk(&text, &mut references);
        assert!(references.len() > 100);
        for reference in references {
            let pointer = reference.trim_start_matches('#');
            assert!(text.pointer(pointer).is_some(), "{reference}");
        }
    }
}
