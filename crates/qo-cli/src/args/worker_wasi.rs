//! The flags of `qo worker` for WASI jobs.

use clap::Args;

use super::values;

/// WASI jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "WASI jobs")]
pub struct WasiArgs {
    /// Run WASI jobs, the tasks of type `wasi`: see `qo run`
    #[arg(long)]
    pub wasi: bool,
    /// Let programs use a directory of this machine; `:ro` forbids writing; repeatable
    #[arg(long, value_name = "HOST::GUEST[:ro]", requires = "wasi")]
    pub wasi_dir: Vec<String>,
    /// Give programs an environment variable; repeatable
    #[arg(long, value_name = "NAME=VALUE", requires = "wasi")]
    pub wasi_env: Vec<String>,
    /// Let programs connect to this host and port; repeatable. Without a value: let them use the whole network
    #[arg(
        long,
        value_name = "HOST:PORT",
        requires = "wasi",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        value_delimiter = ','
    )]
    pub wasi_net: Vec<String>,
    /// Maximum memory of a program [default: 256MiB]
    #[arg(long, value_name = "SIZE", requires = "wasi", value_parser = size)]
    pub wasi_memory: Option<u64>,
    /// Maximum output of a program [default: 64MiB]
    #[arg(long, value_name = "SIZE", requires = "wasi", value_parser = size)]
    pub wasi_output: Option<u64>,
    /// Directory for compiled programs, or `none` [default: qo/wasi in the user's cache directory]
    #[arg(long, value_name = "DIRECTORY", requires = "wasi")]
    pub wasi_cache: Option<String>,
}

/// Maximum of the limits: what a 32-bit program can address.
const SIZE_MAX: u64 = 4 << 30;

/// Parses a limit.
pub fn size(text: &str) -> Result<u64, String> {
    values::bytes(text)
        .filter(|bytes| (1..=SIZE_MAX).contains(bytes))
        .ok_or_else(|| "expected a size such as 64KiB, 256MiB or 1GiB, up to 4GiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!(size("4GiB"), Ok(SIZE_MAX));
        for bad in ["", "0", "5GiB", "1TB", "-1"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
