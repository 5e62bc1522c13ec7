//! Settings for WASI jobs, from flags, variables and `[worker.wasi]` in `qo.toml`. The table itself turns WASI jobs on.

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
    /// Granted peers, or `all`.
    pub(in crate::commands::worker) network: Vec<String>,
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
            network: network(args, sources)?,
            memory_max_bytes: sources.one(args.wasi_memory, "QO_WASI_MEMORY", "memory", size)?,
            output_max_bytes: sources.one(args.wasi_output, "QO_WASI_OUTPUT", "output", size)?,
            cache: sources.one(args.wasi_cache.clone(), "QO_WASI_CACHE", "cache", parsed)?,
        }))
    }
}

/// The granted peers. Variable and file also take a switch, for the whole network.
fn network(args: &WasiArgs, sources: Sources<'_>) -> Result<Vec<String>, Failure> {
    const VARIABLE: &str = "QO_WASI_NET";
    const KEY: &str = "net";
    if !args.wasi_net.is_empty() {
        return Ok(args.wasi_net.clone());
    }
    let words = if let Some(toml::Value::Array(_)) = sources.section.get(KEY) {
        sources.many(&[], VARIABLE, KEY, parsed)?
    } else {
        let text: Option<String> = sources.one(None, VARIABLE, KEY, parsed)?;
        let text = text.unwrap_or_default();
        let words = text.split(',').map(str::trim);
        words
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    Ok(match words.as_slice() {
        [word] => match switch(word) {
            Ok(true) => vec!["all".to_owned()],
            Ok(false) => Vec::new(),
            Err(_) => words,
        },
        _ => words,
    })
}
