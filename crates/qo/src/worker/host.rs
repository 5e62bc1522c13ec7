//! Names of the host and of workers.

use qo_core::names::NAME_MAX_BYTES;
use qo_store::runtime::{Runtime, RuntimeExt};

/// Maximum length of the host's part of a worker name.
const HOST_MAX_BYTES: usize = 32;

/// The host's name, if known.
pub fn host_name() -> Option<String> {
    let from_file = || std::fs::read_to_string("/etc/hostname").ok();
    let from_kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let from_variable = || {
        std::env::var("HOSTNAME")
            .or_else(|_| std::env::var("COMPUTERNAME"))
            .ok()
    };
    let name = from_kernel.or_else(from_variable).or_else(from_file)?;
    let name: String = name.trim().chars().take(255).collect();
    (!name.is_empty()).then_some(name)
}

/// The default name of a worker: host, process id and a random number.
pub(super) fn worker_name(host: Option<&str>, runtime: &dyn Runtime) -> String {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let host: String = host
        .unwrap_or("worker")
        .chars()
        .filter(allowed)
        .take(HOST_MAX_BYTES)
        .collect();
    let host = host.trim_start_matches('.');
    let host = if host.is_empty() { "worker" } else { host };
    let process = std::process::id();
    let name = format!("{host}-{process}-{:04x}", runtime.random_below(0x1_0000));
    name.chars().take(NAME_MAX_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use qo_core::WorkerId;
    use qo_store::runtime::TokioRuntime;

    use super::*;

    #[test]
    fn any_host_name_gives_a_valid_worker_name() {
        let runtime = TokioRuntime::shared();
        for host in [
            None,
            Some(""),
            Some("..."),
            Some("ümläut"),
            Some("web-1.example.org"),
            Some("x/../y z"),
        ] {
            let name = worker_name(host, runtime.as_ref());
            assert!(WorkerId::new(&name).is_ok(), "{name}");
        }
        let long = worker_name(Some(&"x".repeat(300)), runtime.as_ref());
        assert!(WorkerId::new(&long).is_ok(), "{long}");
    }
}
