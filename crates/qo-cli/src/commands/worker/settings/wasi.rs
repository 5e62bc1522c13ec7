//! Settings for WASI jobs, from flags, variables and `[worker.wasi]` in `qo.toml`. The table alone turns WASI jobs on.

use std::fmt;

use super::sources::{Sources, parsed, switch};
use crate::args::worker_wasi::{WasiArgs, size};
use crate::config::ConfigSection;
use crate::failure::Failure;

/// The keys of `[worker.wasi]`.
const KEYS: [&str; 6] = ["cache", "dirs", "env", "memory", "net", "output"];

/// Settings for WASI jobs.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in crate::commands::worker) struct WasiSettings {
    /// Granted directories.
    pub(in crate::commands::worker) directories: Vec<String>,
    /// Granted variables.
    pub(in crate::commands::worker) variables: Vec<String>,
    /// Whether the network is granted.
    pub(in crate::commands::worker) network: bool,
    /// Maximum memory of a program.
    pub(in crate::commands::worker) memory_max_bytes: Option<u64>,
    /// Maximum output of a program.
    pub(in crate::commands::worker) output_max_bytes: Option<u64>,
    /// Directory for compiled programs, or `none`.
    pub(in crate::commands::worker) cache: Option<String>,
}

impl fmt::Debug for WasiSettings {
    /// Omits the variables, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasiSettings")
            .field("directories", &self.directories)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

impl WasiSettings {
    /// The settings, unless WASI jobs are off.
    pub(super) fn resolve(args: &WasiArgs, sources: Sources<'_>) -> Result<Option<Self>, Failure> {
        let in_file = sources.section.contains_key("wasi");
        let flag = args.wasi.then_some(true);
        let variable = sources.variable("QO_WASI", switch)?;
        if !flag.or(variable).unwrap_or(in_file) {
            return Ok(None);
        }
        let section = sources.location.table(sources.section, "wasi")?;
        let sources = Sources {
            location: ConfigSection {
                path: sources.location.path,
                name: "worker.wasi",
            },
            section: &section,
            ..sources
        };
        sources.location.check_keys(&section, &KEYS)?;
        Ok(Some(Self {
            directories: sources.many(&args.wasi_dir, "QO_WASI_DIRS", "dirs", parsed)?,
            variables: if args.wasi_env.is_empty() {
                sources.strings("env")?
            } else {
                args.wasi_env.clone()
            },
            network: sources
                .one(args.wasi_net.then_some(true), "QO_WASI_NET", "net", switch)?
                .unwrap_or(false),
            memory_max_bytes: sources.one(args.wasi_memory, "QO_WASI_MEMORY", "memory", size)?,
            output_max_bytes: sources.one(args.wasi_output, "QO_WASI_OUTPUT", "output", size)?,
            cache: sources.one(args.wasi_cache.clone(), "QO_WASI_CACHE", "cache", parsed)?,
        }))
    }
}
