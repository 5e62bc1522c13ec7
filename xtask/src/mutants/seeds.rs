//! The seeds that are known to find planted bugs: `verify/sim/mutants.txt`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Where they are, from the root of the tree.
pub(super) const FILE: &str = "verify/sim/mutants.txt";

const HEAD: &str = "# A seed that finds each planted bug: the engine, the bug and the seed. `cargo xtask sim --mutants` updates it.\n";

/// The seeds, by engine and bug.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KnownSeeds(BTreeMap<(String, String), u64>);

impl KnownSeeds {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(FILE));
        Self::parse(&text.with_context(|| format!("cannot read {FILE}"))?)
    }

    pub(super) fn write(&self, root: &Path) -> Result<()> {
        fs::write(root.join(FILE), self.text()).with_context(|| format!("cannot write {FILE}"))
    }

    pub(super) fn get(&self, engine: &str, mutant: &str) -> Option<u64> {
        let key = (engine.to_owned(), mutant.to_owned());
        self.0.get(&key).copied()
    }

    /// Keeps a seed, and says whether another was known before.
    pub(super) fn set(&mut self, engine: &str, mutant: &str, seed: u64) -> bool {
        let key = (engine.to_owned(), mutant.to_owned());
        self.0.insert(key, seed) != Some(seed)
    }

    fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let seeds = lines.map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let [engine, mutant, seed] = words.as_slice() else {
                anyhow::bail!("{FILE}: cannot read the line {line:?}");
            };
            let seed = seed.parse();
            let seed = seed.with_context(|| format!("{FILE}: no seed in the line {line:?}"))?;
            Ok((((*engine).to_owned(), (*mutant).to_owned()), seed))
        });
        seeds.collect::<Result<_>>().map(Self)
    }

    fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for ((engine, mutant), seed) in &self.0 {
            // Writing into a string cannot fail.
            let _ = writeln!(text, "{engine} {mutant} {seed}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let mut seeds = KnownSeeds::default();
        assert!(seeds.set("json", "no-sweeper", 7));
        assert!(seeds.set("json", "no-sweeper", 8));
        assert!(!seeds.set("json", "no-sweeper", 8));
        assert_eq!(KnownSeeds::parse(&seeds.text()).unwrap(), seeds);
        assert_eq!(seeds.get("json", "no-sweeper"), Some(8));
        assert_eq!(seeds.get("direct", "no-sweeper"), None);
        for line in ["direct no-sweeper", "direct no-sweeper x"] {
            let error = KnownSeeds::parse(line).unwrap_err().to_string();
            assert!(error.contains(line), "{error}");
        }
    }
}
