//! The environment of a command: the worker's own without its secrets, and the facts of the task.
//!
//! A command is often somebody else's program. It gets what a program needs (`PATH`, `HOME`, `LANG`, ...), but not the
//! credentials with which the worker reaches its store, nor the worker's settings; `--pass-env` names what it gets anyway.

use std::collections::BTreeMap;

use qo::Context;

/// What variables with these beginnings hold is the worker's own: credentials of stores, and settings of qo.
const OWN_PREFIXES: [&str; 6] = ["AWS_", "S3_", "GOOGLE_", "AZURE_", "GCS_", "QO_"];

/// Which variables of the worker a command inherits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inheritance {
    /// Names that are passed although they are the worker's own. One that ends in `*` stands for all that begin so.
    pub passed: Vec<String>,
    /// Names that are kept back although they look harmless: those that hold the credentials of an HTTP handler.
    pub withheld: Vec<String>,
}

impl Inheritance {
    /// The variables that a command inherits, out of those that the worker has.
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
        let own = OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        !own && !self.withheld.iter().any(|withheld| withheld == name)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

/// What a command is told about its task.
pub(super) fn facts(context: &Context) -> Vec<(&'static str, String)> {
    let task = context.task();
    let mut facts = vec![
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
        facts.push(("QO_LEASE_ID", lease.to_string()));
    }
    facts
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
    fn credentials_and_settings_stay_with_the_worker() {
        let plain = Inheritance::default();
        assert_eq!(selected(&plain), ["API_TOKEN", "HOME", "PATH"]);
    }

    #[test]
    fn what_is_named_is_passed_and_what_is_withheld_is_not() {
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
