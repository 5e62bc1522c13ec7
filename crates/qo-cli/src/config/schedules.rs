//! The `[schedules]` section of `qo.toml`, which `qo worker` defines at its start.

use std::path::Path;
use std::time::Duration;

use qo::schedule::{ScheduleSpec, TaskTemplate};
use qo::{Json, Timestamp};

use super::ConfigSection;
use crate::args::schedule::overlap;
use crate::args::submit::{PolicyArgs, on_failure};
use crate::args::values;
use crate::failure::Failure;

/// The keys of a schedule.
const KEYS: [&str; 25] = [
    "at",
    "catch_up",
    "cron",
    "end",
    "every",
    "expires_in",
    "group",
    "input",
    "jitter",
    "limit_key",
    "on_failure",
    "ordering_key",
    "overlap",
    "priority",
    "queue",
    "retries",
    "retry_initial",
    "retry_jitter",
    "retry_max",
    "retry_multiplier",
    "start",
    "tags",
    "time_zone",
    "timeout",
    "type",
];

/// Parses and validates the schedules of a settings file.
pub fn schedules(
    path: &Path,
    section: &toml::Table,
) -> Result<Vec<(String, ScheduleSpec)>, Failure> {
    let mut schedules = Vec::new();
    for (name, value) in section {
        let section = format!("schedules.{name}");
        let location = ConfigSection {
            path,
            name: &section,
        };
        let Some(table) = value.as_table() else {
            return Err(location.wrong_type("", "a table", value));
        };
        location.check_keys(table, &KEYS)?;
        let spec = ScheduleTable { location, table }.spec()?;
        let invalid = |error: qo::Error| {
            Failure::bad_input(format!("[{section}] in {}: {error}", path.display()))
        };
        qo::model::DocumentName::new(name).map_err(|error| invalid(error.into()))?;
        spec.ticks().map_err(|error| invalid(error.into()))?;
        schedules.push((name.clone(), spec));
    }
    Ok(schedules)
}

struct ScheduleTable<'a> {
    location: ConfigSection<'a>,
    table: &'a toml::Table,
}

impl ScheduleTable<'_> {
    fn spec(&self) -> Result<ScheduleSpec, Failure> {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let Some(task_type) = self.parsed("type", parse)? else {
            return Err(Failure::bad_input(format!(
                "[{}] in {} has no type",
                self.location.name,
                self.location.path.display()
            )));
        };
        let default = ScheduleSpec::without_rule(TaskTemplate {
            input: self.json("input")?,
            queue: self.parsed("queue", parse)?,
            priority: self.number("priority")?,
            timeout_seconds: self.duration("timeout")?.map(|it| it.as_secs().max(1)),
            max_retries: self.number("retries")?,
            retry_policy: self.retry_delays()?.policy(),
            expires_in_ms: self.duration("expires_in")?.map(millis),
            tags: self.list("tags", parse)?,
            ordering_key: self.parsed("ordering_key", parse)?,
            ordering_on_failure: self.parsed("on_failure", on_failure)?,
            limit_key: self.parsed("limit_key", parse)?,
            fairness_group: self.parsed("group", parse)?,
            ..TaskTemplate::new(task_type)
        });
        Ok(ScheduleSpec {
            cron: self.location.text(self.table, "cron")?,
            time_zone: self.location.text(self.table, "time_zone")?,
            every_ms: self.duration("every")?.map(millis),
            at: self.list("at", values::timestamp)?,
            start: self.time("start")?,
            end: self.time("end")?,
            overlap: self.parsed("overlap", overlap)?.unwrap_or_default(),
            catch_up_ms: self
                .duration("catch_up")?
                .map_or(default.catch_up_ms, millis),
            jitter_ms: self.duration("jitter")?.map_or(0, millis),
            ..default
        })
    }

    fn retry_delays(&self) -> Result<PolicyArgs, Failure> {
        Ok(PolicyArgs {
            retry_initial: self.duration("retry_initial")?,
            retry_max: self.duration("retry_max")?,
            retry_multiplier: self.decimal("retry_multiplier")?,
            retry_jitter: self.decimal("retry_jitter")?,
        })
    }

    fn invalid(&self, key: &str, problem: &str) -> Failure {
        Failure::bad_input(format!(
            "\"{}.{key}\" in {}: {problem}",
            self.location.name,
            self.location.path.display()
        ))
    }

    fn parsed<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        let text = self.location.text(self.table, key)?;
        text.map(|text| parse(&text).map_err(|problem| self.invalid(key, &problem)))
            .transpose()
    }

    /// A duration: text such as `15m`, or a number of seconds.
    fn duration(&self, key: &str) -> Result<Option<Duration>, Failure> {
        let text = match self.table.get(key) {
            None => return Ok(None),
            Some(toml::Value::Integer(seconds)) => seconds.to_string(),
            Some(toml::Value::String(text)) => text.clone(),
            Some(other) => return Err(self.location.wrong_type(key, "a duration", other)),
        };
        let parsed = values::duration(&text);
        parsed
            .map(Some)
            .map_err(|problem| self.invalid(key, &problem))
    }

    /// A time: text, or a date-time of TOML.
    fn time(&self, key: &str) -> Result<Option<Timestamp>, Failure> {
        let text = match self.table.get(key) {
            None => return Ok(None),
            Some(toml::Value::Datetime(at)) => at.to_string(),
            Some(toml::Value::String(text)) => text.clone(),
            Some(other) => return Err(self.location.wrong_type(key, "a time", other)),
        };
        let parsed = values::timestamp(&text);
        parsed
            .map(Some)
            .map_err(|problem| self.invalid(key, &problem))
    }

    fn number<T: TryFrom<i64>>(&self, key: &str) -> Result<Option<T>, Failure> {
        match self.table.get(key) {
            None => Ok(None),
            Some(toml::Value::Integer(number)) => match T::try_from(*number) {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(self.invalid(key, "the number is out of range")),
            },
            Some(other) => Err(self.location.wrong_type(key, "a number", other)),
        }
    }

    fn decimal(&self, key: &str) -> Result<Option<f64>, Failure> {
        let text = match self.table.get(key) {
            None => return Ok(None),
            Some(toml::Value::Float(number)) => return Ok(Some(*number)),
            Some(toml::Value::Integer(number)) => number.to_string(),
            Some(other) => return Err(self.location.wrong_type(key, "a number", other)),
        };
        parse(&text)
            .map(Some)
            .map_err(|problem| self.invalid(key, &problem))
    }

    fn list<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, Failure> {
        let values = match self.table.get(key) {
            None => return Ok(Vec::new()),
            Some(toml::Value::Array(values)) => values,
            Some(other) => return Err(self.location.wrong_type(key, "a list", other)),
        };
        let one = |value: &toml::Value| {
            let text = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Datetime(at) => at.to_string(),
                other => return Err(self.location.wrong_type(key, "a list of texts", other)),
            };
            parse(&text).map_err(|problem| self.invalid(key, &problem))
        };
        values.iter().map(one).collect()
    }

    /// Any value, as JSON.
    fn json(&self, key: &str) -> Result<Option<Json>, Failure> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        let json = Json::from_value(value);
        json.map(Some)
            .map_err(|error| self.invalid(key, &error.to_string()))
    }
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<(String, ScheduleSpec)>, Failure> {
        let table: toml::Table = toml::from_str(text).unwrap();
        schedules(Path::new("dir/qo.toml"), &table)
    }

    #[test]
    fn all_keys_are_parsed() {
        let all = parsed(
            r#"
            [nightly]
            cron = "30 2 * * *"
            time_zone = "Europe/Berlin"
            type = "report"
            input = { region = "eu", parts = [1, 2] }
            queue = "reports"
            priority = 2
            retries = 7
            retry_initial = "10s"
            retry_max = "10m"
            retry_multiplier = 3
            retry_jitter = 0.5
            ordering_key = "account 17"
            on_failure = "stop"
            timeout = "10m"
            expires_in = "1h"
            overlap = "buffer-one"
            catch_up = "2h"
            jitter = "30s"
            start = 2026-01-01T00:00:00Z
            end = "2099-01-01T00:00:00Z"
            tags = ["a", "b"]
            [poll]
            every = 900
            type = "fetch"
            [launch]
            at = ["2027-01-01T00:00:00Z", 2027-01-02T00:00:00Z]
            type = "announce"
            "#,
        )
        .unwrap();
        let nightly = &all.iter().find(|(name, _)| name == "nightly").unwrap().1;
        assert_eq!(
            nightly.task.input.as_ref().unwrap().as_str(),
            r#"{"parts":[1,2],"region":"eu"}"#
        );
        assert_eq!(
            (nightly.catch_up_ms, nightly.jitter_ms),
            (7_200_000, 30_000)
        );
        assert_eq!(nightly.task.timeout_seconds, Some(600));
        let policy = nightly.task.retry_policy.as_ref().unwrap();
        assert_eq!(
            (policy.initial_interval_ms, policy.max_interval_ms),
            (10_000, 600_000)
        );
        assert!((policy.multiplier - 3.0).abs() < f64::EPSILON);
        assert!((policy.jitter_percent - 0.5).abs() < f64::EPSILON);
        let rule = nightly.task.ordering().unwrap();
        assert_eq!(
            (rule.key.as_str(), rule.on_failure),
            ("account 17", qo::OnFailure::Stop)
        );
        let poll = &all.iter().find(|(name, _)| name == "poll").unwrap().1;
        assert_eq!(poll.every_ms, Some(900_000));
        let launch = &all.iter().find(|(name, _)| name == "launch").unwrap().1;
        assert_eq!(launch.at.len(), 2);
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
        let long_key = format!(
            "[a]\ntype = 't'\nevery = '1m'\nordering_key = '{}'",
            "k".repeat(257)
        );
        for (text, part) in [
            (long_key.as_str(), "schedules.a.ordering_key"),
            (
                "[a]\ntype = 't'\nevery = '1m'\non_failure = 'stop'",
                "without an ordering key",
            ),
            (
                "[a]\ntype = 't'\nevery = '1m'\nordering_key = 'k'\non_failure = 'explode'",
                "expected continue or stop",
            ),
            ("[a]\ntype = 't'\nevery = '1m'\nretry_jitter = 2", "jitter"),
            ("[a]\ntype = 't'\ncrom = '* * * * *'", "schedules.a.crom"),
            ("[a]\ncron = '* * * * *'", "no type"),
            ("[a]\ntype = 't'\ncron = 'nonsense'", "not a cron line"),
            ("[a]\ntype = 't'\nevery = '0s'", "interval"),
            (
                "[a]\ntype = 't'\nevery = '1m'\npriority = 300",
                "out of range",
            ),
            (
                "[a]\ntype = 't'\nevery = '1m'\noverlap = 'never'",
                "expected allow",
            ),
            ("['a/b']\ntype = 't'\nevery = '1m'", "a/b"),
            ("a = 1", "expected a table"),
        ] {
            let failure = parsed(text).unwrap_err();
            assert!(failure.message.contains(part), "{failure}");
            assert!(failure.message.contains("dir/qo.toml"), "{failure}");
        }
    }
}
