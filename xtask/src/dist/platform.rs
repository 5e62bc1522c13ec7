//! The names that packaging systems give to the platform.

use std::env::consts::{ARCH, OS};

use anyhow::{Result, bail};

/// A processor architecture, as each packaging system spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Platform {
    /// As Rust and Python spell it.
    pub(super) rust: &'static str,
    pub(super) debian: &'static str,
    pub(super) npm: &'static str,
}

const PLATFORMS: [Platform; 2] = [
    Platform {
        rust: "x86_64",
        debian: "amd64",
        npm: "x64",
    },
    Platform {
        rust: "aarch64",
        debian: "arm64",
        npm: "arm64",
    },
];

impl Platform {
    /// The platform that xtask runs on.
    pub(super) fn current() -> Result<Self> {
        let found = PLATFORMS.into_iter().find(|one| one.rust == ARCH);
        match found {
            Some(platform) if OS == "linux" => Ok(platform),
            _ => bail!(
                "packages can be built on Linux on x86_64 and aarch64 only, not on {OS} on {ARCH}"
            ),
        }
    }
}
