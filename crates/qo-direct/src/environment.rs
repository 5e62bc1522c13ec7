//! Settings of direct mode from environment variables, by the rules of [`qo_engine::environment`].

use std::collections::BTreeMap;
use std::time::Duration;

use qo_engine::environment::{ConfigError, error, flag, number, page_size, value};

use super::{DirectConfig, MaintenanceConfig};

/// The longest allowed interval: one day.
const INTERVAL_MAX_SECONDS: u64 = 24 * 60 * 60;

/// The longest retention: ten years.
const RETENTION_MAX_SECONDS: u64 = 10 * 366 * INTERVAL_MAX_SECONDS;

/// Whether workers also run the maintenance, which `QO_NO_MONITOR` turns off.
pub fn embeds_monitor(vars: &BTreeMap<String, String>) -> Result<bool, ConfigError> {
    Ok(!flag(vars, "QO_NO_MONITOR")?.unwrap_or(false))
}

impl MaintenanceConfig {
    /// The defaults, overridden by the `QO_MONITOR_…` variables.
    pub fn from_env(vars: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let base = Self::default();
        let interval = |name, min, default: Duration| {
            number(vars, name, min, INTERVAL_MAX_SECONDS)
                .map(|seconds| seconds.map_or(default, Duration::from_secs))
        };
        Ok(Self {
            check_interval: interval("QO_MONITOR_CHECK_INTERVAL", 1, base.check_interval)?,
            worker_health_threshold: interval(
                "QO_MONITOR_WORKER_HEALTH_THRESHOLD",
                1,
                base.worker_health_threshold,
            )?,
            sweep_interval: interval("QO_MONITOR_SWEEP_INTERVAL", 0, base.sweep_interval)?,
            sweep_page_size: page_size(vars, "QO_MONITOR_SWEEP_PAGE_SIZE")?
                .unwrap_or(base.sweep_page_size),
            retention: number(vars, "QO_MONITOR_RETENTION", 0, RETENTION_MAX_SECONDS)?
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
        })
    }
}

impl DirectConfig {
    /// `base`, overridden by `QO_INDEX_MODE`, `QO_READY_PAGE_SIZE` and `QO_LOG_SCAN_PAGE_SIZE`.
    pub fn from_env(mut base: Self, vars: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        const INDEX_MODE: &str = "QO_INDEX_MODE";
        if let Some(text) = value(vars, INDEX_MODE) {
            let mode = text.parse();
            base.index_mode =
                mode.map_err(|_| error(INDEX_MODE, text, "index-only, hybrid or log-scan"))?;
        }
        if let Some(size) = page_size(vars, "QO_READY_PAGE_SIZE")? {
            base.ready_page_size = size;
        }
        if let Some(size) = page_size(vars, "QO_LOG_SCAN_PAGE_SIZE")? {
            base.log_scan_page_size = size;
        }
        Ok(base)
    }
}

/// Whether `QO_ALLOW_NO_VERSIONING` is set, so that [`super::init`] does not switch versioning on.
///
/// The variable has no other effect: a task carries its own history, so qo never rejects a bucket without versions.
pub fn allows_no_versioning(vars: &BTreeMap<String, String>) -> Result<bool, ConfigError> {
    Ok(flag(vars, "QO_ALLOW_NO_VERSIONING")?.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IndexMode;

    fn vars(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn unset_variables_keep_the_base_settings() {
        for vars in [
            vars(&[]),
            vars(&[("QO_INDEX_MODE", ""), ("QO_READY_PAGE_SIZE", " ")]),
        ] {
            let base = DirectConfig {
                index_mode: IndexMode::Hybrid,
                ready_page_size: 7,
                ..DirectConfig::local()
            };
            let config = DirectConfig::from_env(base.clone(), &vars).unwrap();
            assert_eq!(format!("{config:?}"), format!("{base:?}"));
            assert_eq!(
                MaintenanceConfig::from_env(&vars).unwrap(),
                MaintenanceConfig::default()
            );
            assert!(!allows_no_versioning(&vars).unwrap());
            assert!(embeds_monitor(&vars).unwrap());
        }
    }

    #[test]
    fn all_settings_can_be_set() {
        let vars = vars(&[
            ("QO_INDEX_MODE", "log-scan"),
            ("QO_READY_PAGE_SIZE", "100"),
            ("QO_LOG_SCAN_PAGE_SIZE", "1000"),
            ("QO_NO_MONITOR", "true"),
            ("QO_MONITOR_CHECK_INTERVAL", "5"),
            ("QO_MONITOR_WORKER_HEALTH_THRESHOLD", "90"),
            ("QO_MONITOR_SWEEP_INTERVAL", "0"),
            ("QO_MONITOR_SWEEP_PAGE_SIZE", "1"),
            ("QO_MONITOR_RETENTION", "86400"),
            ("QO_ALLOW_NO_VERSIONING", "1"),
        ]);
        let config = DirectConfig::from_env(DirectConfig::default(), &vars).unwrap();
        assert_eq!(config.index_mode, IndexMode::LogScan);
        assert_eq!(
            (config.ready_page_size, config.log_scan_page_size),
            (100, 1_000)
        );
        assert_eq!(
            MaintenanceConfig::from_env(&vars).unwrap(),
            MaintenanceConfig {
                check_interval: Duration::from_secs(5),
                worker_health_threshold: Duration::from_secs(90),
                sweep_interval: Duration::ZERO,
                sweep_page_size: 1,
                retention: Some(Duration::from_hours(24)),
            }
        );
        assert!(allows_no_versioning(&vars).unwrap());
        assert!(!embeds_monitor(&vars).unwrap());
    }

    #[test]
    fn an_invalid_value_is_rejected_with_the_variable_and_the_allowed_values() {
        let read = |name: &str, value: &str| {
            let vars = vars(&[(name, value)]);
            DirectConfig::from_env(DirectConfig::default(), &vars)
                .map(drop)
                .and(MaintenanceConfig::from_env(&vars).map(drop))
                .and(embeds_monitor(&vars).map(drop))
                .and(allows_no_versioning(&vars).map(drop))
        };
        for (name, value, allowed) in [
            ("QO_INDEX_MODE", "Hybrid", "index-only, hybrid or log-scan"),
            ("QO_READY_PAGE_SIZE", "0", "from 1 to 1000"),
            ("QO_LOG_SCAN_PAGE_SIZE", "1001", "from 1 to 1000"),
            ("QO_LOG_SCAN_PAGE_SIZE", "-1", "from 1 to 1000"),
            ("QO_NO_MONITOR", "ture", "1 or true, 0 or false"),
            ("QO_MONITOR_CHECK_INTERVAL", "0", "from 1 to 86400"),
            (
                "QO_MONITOR_WORKER_HEALTH_THRESHOLD",
                "1m",
                "from 1 to 86400",
            ),
            ("QO_MONITOR_SWEEP_INTERVAL", "86401", "from 0 to 86400"),
            ("QO_MONITOR_SWEEP_PAGE_SIZE", "9e2", "from 1 to 1000"),
            ("QO_ALLOW_NO_VERSIONING", "yes", "1 or true, 0 or false"),
        ] {
            let message = read(name, value).unwrap_err().to_string();
            assert!(
                message.contains(name) && message.contains(value) && message.contains(allowed),
                "{message}"
            );
        }
        let long = "9".repeat(10_000);
        let message = read("QO_READY_PAGE_SIZE", &long).unwrap_err().to_string();
        assert!(message.len() < 200, "{message}");
    }
}
