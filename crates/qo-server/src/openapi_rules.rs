//! What the generator of the OpenAPI document cannot say: which fields exclude or need each other, and the bounds of numbers.

use qo_core::schedule::Overlap;
use serde_json::{Value, json};

use crate::task_fields;

/// Adds the rules to the document.
pub(crate) fn add(document: &mut Value) {
    bound_numbers(document);
    for item in fields(document, "/paths") {
        for operation in item.as_object_mut().into_iter().flatten() {
            optional_body(operation.1);
        }
    }
    body_rules(document);
    let weights = "/components/schemas/QueueSettingsBody/properties/group_weights";
    if let Some(weights) = document.pointer_mut(weights) {
        weights["propertyNames"] = json!({"$ref": "#/components/schemas/Name"});
        weights["additionalProperties"] = json!({"type": "integer", "minimum": 1, "maximum": 1000});
        weights["maxProperties"] = json!(1000);
    }
    let scopes = "/components/schemas/TokenBody/properties/scopes/items";
    if let Some(scope) = document.pointer_mut(scopes) {
        scope["enum"] = json!(["submit", "work", "read", "admin"]);
    }
    let kinds = json!({"type": "string", "enum": ["schedules", "queues", "limits", "webhooks"]});
    parameter(document, "/v1/settings/{kind}", "kind", &kinds);
    let token = json!({"type": "string", "pattern": "^[0-9a-f]{16}$"});
    parameter(document, "/v1/tokens/{token}", "token", &token);
    let group = json!({"type": "integer", "minimum": 0, "maximum": u16::MAX});
    parameter(document, "/v1/cluster/log", "group", &group);
    let names = task_fields::NAMES.join("|");
    let fields = json!({"type": "string", "pattern": format!("^({names})(,({names}))*$"), "maxLength": 1024});
    parameter(document, "/v1/tasks", "fields", &fields);
}

/// Adds the rules between the fields of bodies.
fn body_rules(document: &mut Value) {
    let one_of =
        |names: &[&str]| json!({"anyOf": names.iter().map(|name| given(name)).collect::<Vec<_>>()});
    rule(
        document,
        "CompleteBody",
        "not",
        json_and_bytes("output", "output_bytes"),
    );
    rule(
        document,
        "LimitBody",
        "allOf",
        json!([
            one_of(&["queue", "task_type", "limit_key"]),
            one_of(&["concurrent", "starts"])
        ]),
    );
    rule(
        document,
        "SubmitBody",
        "allOf",
        json!([
            {"not": json_and_bytes("input", "input_bytes")},
            not_both("available_at", "delay_ms"),
            not_both("expires_at", "expires_in_ms"),
            {"anyOf": [absent("ordering_on_failure"), given("ordering_key")]},
        ]),
    );
    let is = |operation: &str| json!({"properties": {"operation": {"const": operation}}});
    let is_false = |name: &str| json!({"properties": {name: {"const": false}}});
    rule(
        document,
        "BulkBody",
        "allOf",
        json!([
            {"anyOf": [is("cancel"), absent("reason")]},
            {"anyOf": [
                {"allOf": [is("redrive"), given("to")]},
                {"allOf": [{"not": is("redrive")}, absent("to")]},
            ]},
            {"anyOf": [is_false("background"), is_false("dry_run")]},
        ]),
    );
    rule(
        document,
        "ScheduleBody",
        "oneOf",
        json!([
            given("cron"),
            given("every_ms"),
            {"required": ["at"], "properties": {"at": {"minItems": 1}}},
        ]),
    );
    rule(
        document,
        "ScheduleBody",
        "anyOf",
        json!([absent("time_zone"), given("cron")]),
    );
    rule(
        document,
        "TaskTemplateBody",
        "anyOf",
        json!([absent("ordering_on_failure"), given("ordering_key")]),
    );
    for field in ["body", "settled"] {
        let pointer = format!("/components/schemas/SettingsBody/properties/{field}");
        if let Some(schema) = document.pointer_mut(&pointer) {
            let description = schema["description"].take();
            *schema = json!({"type": ["object", "null"], "description": description});
        }
    }
    let overlap = "/components/schemas/ScheduleBody/properties/overlap";
    if let Some(schema) = document.pointer_mut(overlap) {
        let names = Overlap::ALL
            .map(Overlap::as_str)
            .into_iter()
            .map(Value::from);
        schema["enum"] = names.chain([Value::Null]).collect();
    }
}

/// A payload as JSON and as bytes. A `null` is JSON, too.
fn json_and_bytes(json: &str, bytes: &str) -> Value {
    json!({"required": [json, bytes], "properties": {bytes: {"not": {"type": "null"}}}})
}

/// A field that is missing or `null`.
fn absent(name: &str) -> Value {
    json!({"properties": {name: {"type": "null"}}})
}

/// One of two fields is missing or `null`.
fn not_both(one: &str, other: &str) -> Value {
    json!({"anyOf": [absent(one), absent(other)]})
}

/// A field that is present and not `null`.
fn given(name: &str) -> Value {
    json!({"required": [name], "properties": {name: {"not": {"type": "null"}}}})
}

/// The values of an object in the document.
fn fields<'a>(document: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    let object = document.pointer_mut(pointer).and_then(Value::as_object_mut);
    object.into_iter().flat_map(serde_json::Map::values_mut)
}

fn rule(document: &mut Value, schema: &str, keyword: &str, rule: Value) {
    let pointer = format!("/components/schemas/{schema}");
    if let Some(schema) = document.pointer_mut(&pointer) {
        schema[keyword] = rule;
    }
}

/// Sets the schema of a parameter in all operations of a path.
fn parameter(document: &mut Value, path: &str, name: &str, schema: &Value) {
    let pointer = format!("/paths/{}", path.replace('/', "~1"));
    for operation in fields(document, &pointer) {
        let parameters = operation
            .get_mut("parameters")
            .and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            if parameter["name"] == name {
                parameter["schema"].clone_from(schema);
            }
        }
    }
}

/// A body that may be left out is not `null` if it is there.
fn optional_body(operation: &mut Value) {
    for content in fields(operation, "/requestBody/content") {
        let forms = content.pointer("/schema/oneOf").and_then(Value::as_array);
        let is_null = |form: &&Value| form["type"] == "null";
        let Some([first, second]) = forms.map(Vec::as_slice) else {
            continue;
        };
        let form = match (is_null(&first), is_null(&second)) {
            (true, false) => second.clone(),
            (false, true) => first.clone(),
            _ => continue,
        };
        content["schema"] = form;
    }
}

/// A number from zero on, without a bound of its own, has at most 64 bits.
fn bound_numbers(value: &mut Value) {
    match value {
        Value::Array(parts) => parts.iter_mut().for_each(bound_numbers),
        Value::Object(fields) => {
            let is_integer = match fields.get("type") {
                Some(Value::Array(types)) => types.iter().any(|one| one == "integer"),
                Some(one) => one == "integer",
                None => false,
            };
            let starts_at_zero = fields
                .get("minimum")
                .is_some_and(|least| *least == json!(0));
            if is_integer && starts_at_zero && !fields.contains_key("maximum") {
                fields.insert("maximum".to_owned(), json!(u64::MAX));
            }
            fields.values_mut().for_each(bound_numbers);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn the_rules_are_in_the_document() {
        let document = crate::openapi::document_json();
        let schema = |name: &str| &document["components"]["schemas"][name];
        assert!(schema("CompleteBody")["not"]["required"].is_array());
        assert_eq!(
            schema("LimitBody")["allOf"][0]["anyOf"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
        for (name, keyword, rules) in [
            ("SubmitBody", "allOf", 4),
            ("BulkBody", "allOf", 3),
            ("ScheduleBody", "oneOf", 3),
        ] {
            assert_eq!(schema(name)[keyword].as_array().unwrap().len(), rules);
        }
        let settings = &schema("SettingsBody")["properties"];
        assert_eq!(settings["body"]["type"], json!(["object", "null"]));
        assert_eq!(
            schema("Worker")["properties"]["slots"]["maximum"],
            u32::MAX,
            "{}",
            schema("Worker")
        );
        let weights = &schema("QueueSettingsBody")["properties"]["group_weights"];
        assert_eq!(
            weights["propertyNames"]["$ref"],
            "#/components/schemas/Name"
        );
        let scopes = &schema("TokenBody")["properties"]["scopes"];
        assert_eq!(scopes["items"]["enum"].as_array().unwrap().len(), 4);
        for path in [
            "/v1/queues/{queue}/pause",
            "/v1/tasks/{id}/cancel",
            "/blobs/gc",
        ] {
            let body = &document["paths"][path]["post"]["requestBody"];
            assert!(
                body["content"]["application/json"]["schema"]["$ref"].is_string(),
                "{body}"
            );
            assert_ne!(body["required"], true, "{path}");
        }
        for (path, method, name) in [
            ("/v1/settings/{kind}", "post", "kind"),
            ("/v1/tokens/{token}", "delete", "token"),
            ("/v1/cluster/log", "get", "group"),
        ] {
            let parameters = document["paths"][path][method]["parameters"]
                .as_array()
                .unwrap();
            let found = parameters.iter().find(|one| one["name"] == name).unwrap();
            let schema = &found["schema"];
            let is_bounded = ["enum", "pattern", "maximum"]
                .iter()
                .any(|rule| schema.get(rule).is_some());
            assert!(is_bounded, "{path}: {schema}");
        }
    }
}
