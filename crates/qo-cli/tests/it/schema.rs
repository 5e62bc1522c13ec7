//! Validates JSON against the schemas in `docs/schemas/`. Supports the part of JSON Schema that they use; an unknown keyword fails the
//! test, so that no rule is ignored.

use std::path::PathBuf;

use serde_json::Value;

/// Fails the test unless the value matches the schema.
pub(crate) fn check(name: &str, value: &Value) {
    let schema = load(&format!("{name}.json"));
    if let Err(problem) = validate(&schema, value, "$") {
        panic!("{name}: {problem}\n{value:#}");
    }
}

fn load(file: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/schemas")
        .join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn validate(schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let rules = schema.as_object().expect("a schema is an object");
    for (keyword, rule) in rules {
        match keyword.as_str() {
            "$schema" | "title" | "description" | "properties" | "additionalProperties" => {}
            "$ref" => validate(&load(rule.as_str().unwrap()), value, path)?,
            "type" => {
                let names = match rule {
                    Value::Array(names) => names.clone(),
                    name => vec![name.clone()],
                };
                let fits = |name: &Value| has_type(value, name.as_str().unwrap());
                if !names.iter().any(fits) {
                    return Err(format!("{path} is not of type {rule}"));
                }
            }
            "enum" => {
                if !rule.as_array().unwrap().contains(value) {
                    return Err(format!("{path} is {value}, not one of {rule}"));
                }
            }
            "minimum" => {
                if value.as_f64().unwrap() < rule.as_f64().unwrap() {
                    return Err(format!("{path} is below {rule}"));
                }
            }
            "maximum" => {
                if value.as_f64().unwrap() > rule.as_f64().unwrap() {
                    return Err(format!("{path} is above {rule}"));
                }
            }
            "format" => {
                let text = value.as_str().unwrap();
                let fits = match rule.as_str().unwrap() {
                    "uuid" => text.parse::<qo::TaskId>().is_ok(),
                    "date-time" => text.parse::<qo::Timestamp>().is_ok() && text.ends_with('Z'),
                    other => panic!("unknown format {other}"),
                };
                if !fits {
                    return Err(format!("{path} is {value}, not a {rule}"));
                }
            }
            // It says nothing about values that are no objects.
            "required" if !value.is_object() => {}
            "required" => {
                for name in rule.as_array().unwrap() {
                    if value.get(name.as_str().unwrap()).is_none() {
                        return Err(format!("{path} has no {name}"));
                    }
                }
            }
            "items" => {
                for (index, item) in value.as_array().unwrap().iter().enumerate() {
                    validate(rule, item, &format!("{path}[{index}]"))?;
                }
            }
            "anyOf" => {
                let mut options = rule.as_array().unwrap().iter();
                if !options.any(|option| validate(option, value, path).is_ok()) {
                    return Err(format!("{path} has none of the allowed forms"));
                }
            }
            other => panic!("unsupported keyword {other}"),
        }
    }
    let Some(fields) = value.as_object() else {
        return Ok(());
    };
    for (name, field) in fields {
        let path = format!("{path}.{name}");
        match (
            rules.get("properties").and_then(|rules| rules.get(name)),
            rules.get("additionalProperties"),
        ) {
            (Some(rule), _) | (None, Some(rule @ Value::Object(_))) => {
                validate(rule, field, &path)?;
            }
            (None, Some(Value::Bool(false))) => return Err(format!("{path} is not documented")),
            (None, _) => {}
        }
    }
    Ok(())
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        other => panic!("unknown type {other}"),
    }
}

#[test]
fn invalid_values_are_rejected() {
    let error = serde_json::json!({ "error": { "kind": "strange", "message": "", "hint": null } });
    let schema = load("error.json");
    assert!(
        validate(&schema, &error, "$")
            .unwrap_err()
            .contains("strange")
    );
    let error = serde_json::json!({ "error": { "kind": "other", "message": "" } });
    assert!(validate(&schema, &error, "$").unwrap_err().contains("hint"));
    let error =
        serde_json::json!({ "error": { "kind": "other", "message": "", "hint": null, "x": 1 } });
    assert!(
        validate(&schema, &error, "$")
            .unwrap_err()
            .contains("not documented")
    );
}
