//! The environment of a command: the worker's variables without its secrets, plus variables that describe the task.
//!
//! A command may be third-party code. It inherits general variables (`PATH`, `HOME`, `LANG`, ...), but not the credentials of the
//! worker's store and not the worker's settings. `--pass-env` makes exceptions.

use std::collections::BTreeMap;

use qo::Context;

/// Prefixes of variables that are withheld: store credentials and settings of qo.
const WITHHELD_PREFIXES: [&str; 6] = ["AWS_", "S3_", "GOOGLE_", "AZURE_", "GCS_", "QO_"];

/// Selects the variables that a command inherits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inheritance {
    /// Names passed despite a withheld prefix. A name that ends in `*` matches all with that prefix.
    pub passed: Vec<String>,
    /// Names withheld in addition: variables that contain credentials of an HTTP handler.
    pub withheld: Vec<String>,
}

impl Inheritance {
    /// Selects the inherited variables.
    pub fn select(&self, variables: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let passed = variables.iter().filter(|(name, _)| self.passes(name));
        passed
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    fn passes(&self, name: &str) -> bool {
        if self.passed.iter().any(|pattern| matches(pattern, name)) {
            return true;
        }
        let has_withheld_prefix = WITHHELD_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
        !has_withheld_prefix && !self.withheld.iter().any(|withheld| withheld == name)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

/// The variables that describe the task.
pub(super) fn task_variables(context: &Context) -> Vec<(&'static str, String)> {
    let task = context.task();
    let mut variables = vec![
        ("QO_TASK_ID", task.id.to_string()),
        ("QO_TASK_TYPE", task.task_type.to_string()),
        ("QO_ATTEMPT", context.attempt().to_string()),
        ("QO_QUEUE", task.queue.to_string()),
        ("QO_PRIORITY", task.priority.to_string()),
        ("QO_RETRY_COUNT", task.retry_count.to_string()),
        ("QO_MAX_RETRIES", task.max_retries.to_string()),
        ("QO_CREATED_AT", task.created_at.to_string()),
        ("QO_DEADLINE", context.deadline().to_string()),
        ("QO_WORKER_ID", context.worker().to_string()),
    ];
    if let Some(lease) = task.lease_id {
        variables.push(("QO_LEASE_ID", lease.to_string()));
    }
    if let Some(index) = context.log_index() {
        variables.push(("QO_LOG_INDEX", index.to_string()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(inheritance: &Inheritance) -> Vec<String> {
        let names = [
            "PATH",
            "HOME",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_REGION",
            "S3_BUCKET",
            "QO_STORE",
            "API_TOKEN",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "AZURE_STORAGE_ACCOUNT_KEY",
        ];
        let variables = names.map(|name| (name.to_owned(), "value".to_owned()));
        let selected = inheritance.select(&variables.into_iter().collect());
        selected.into_keys().collect()
    }

    #[test]
    fn credentials_and_settings_are_withheld() {
        let plain = Inheritance::default();
        assert_eq!(selected(&plain), ["API_TOKEN", "HOME", "PATH"]);
    }

    #[test]
    fn named_variables_are_passed_and_withheld_ones_are_not() {
        let inheritance = Inheritance {
            passed: vec!["QO_STORE".into(), "AWS_*".into()],
            withheld: vec!["API_TOKEN".into()],
        };
        let expected = [
            "AWS_REGION",
            "AWS_SECRET_ACCESS_KEY",
            "HOME",
            "PATH",
            "QO_STORE",
        ];
        assert_eq!(selected(&inheritance), expected);
    }
}
