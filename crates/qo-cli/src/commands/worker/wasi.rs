//! The handler of WASI jobs.

use qo::TaskHandler;

use super::settings::WasiSettings;
use crate::environment::Environment;
use crate::failure::Failure;

/// Creates the handler.
#[cfg(feature = "wasi")]
pub(super) fn handler(
    settings: &WasiSettings,
    environment: &Environment,
) -> Result<Box<dyn TaskHandler>, Failure> {
    use std::sync::Arc;

    use qo_wasi::{Directory, Grants, Limits, Network, Programs, Sandbox, SandboxConfig};

    use crate::failure::FailureKind;
    use crate::handlers::wasi::WasiHandler;

    let network = Network::parse(settings.network.iter().map(String::as_str))
        .map_err(|error| Failure::bad_input(format!("--wasi-net: {error}")))?;
    let mut grants = Grants {
        network,
        ..Grants::default()
    };
    for text in &settings.directories {
        let mut directory: Directory = text
            .parse()
            .map_err(|error| Failure::bad_input(format!("--wasi-dir {text}: {error}")))?;
        directory.host = environment.directory.join(&directory.host);
        if !directory.host.is_dir() {
            return Err(Failure::bad_input(format!(
                "--wasi-dir: {} is not a directory",
                directory.host.display()
            )));
        }
        grants.directories.push(directory);
    }
    for text in &settings.variables {
        let variable = Grants::variable(text);
        // Not the text, which may be a secret.
        let variable =
            variable.map_err(|error| Failure::bad_input(format!("--wasi-env: {error}")))?;
        grants.environment.push(variable);
    }
    let defaults = Limits::default();
    let cache = match settings.cache.as_deref() {
        Some("none") => None,
        Some(path) => Some(environment.directory.join(path)),
        None => environment
            .cache_directory()
            .map(|path| path.join("qo/wasi")),
    };
    let mut config = SandboxConfig::default();
    config.limits = Limits {
        memory_bytes: settings.memory_max_bytes.unwrap_or(defaults.memory_bytes),
        output_bytes: settings.output_max_bytes.unwrap_or(defaults.output_bytes),
        ..defaults
    };
    config.grants = grants;
    config.cache = cache;
    let sandbox = Sandbox::new(config).map_err(|error| {
        Failure::new(FailureKind::Unsupported, error.to_string())
            .hint("--wasi-cache names another directory, or none")
    })?;
    let programs = Programs::new(Arc::new(sandbox));
    Ok(Box::new(WasiHandler::new(Arc::new(programs))))
}

/// This build has no WebAssembly engine.
#[cfg(not(feature = "wasi"))]
pub(super) fn handler(
    _settings: &WasiSettings,
    _environment: &Environment,
) -> Result<Box<dyn TaskHandler>, Failure> {
    Err(Failure::new(
        crate::failure::FailureKind::Unsupported,
        "this build of qo cannot run WASI jobs",
    )
    .hint("the released packages can; from source, build with `cargo build --release --features wasi`"))
}
