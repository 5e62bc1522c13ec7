//! Compiled programs, kept by the address of their binary.
//!
//! | level | bound | survives a restart |
//! | --- | --- | --- |
//! | memory | [`PROGRAMS_MAX`] programs and [`CODE_MAX_BYTES`] of machine code; the least recently used goes first | no |
//! | disk (`disk_cache.rs`) | number and size of files | yes |
//!
//! Concurrent requests for one program share one compilation. Programs that cannot be compiled are not remembered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::OnceCell;

use crate::error::CompileError;
use crate::program::Program;
use crate::sandbox::Sandbox;

/// Maximum number of programs in memory.
const PROGRAMS_MAX: usize = 64;
/// Maximum bytes of machine code in memory.
const CODE_MAX_BYTES: usize = 512 << 20;

/// What identifies a binary: its SHA-256.
pub type Address = [u8; 32];

/// The programs of a sandbox.
#[derive(Debug)]
pub struct Programs {
    sandbox: Arc<Sandbox>,
    entries: Mutex<Entries>,
    compilations: AtomicU64,
}

#[derive(Debug, Default)]
struct Entries {
    by_address: BTreeMap<Address, Entry>,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    program: Arc<OnceCell<Program>>,
    used: u64,
}

/// The error of [`Programs::get`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GetError<E> {
    /// The binary could not be loaded.
    #[error("{0}")]
    Load(E),
    /// The binary could not be compiled.
    #[error(transparent)]
    Compile(CompileError),
}

impl Programs {
    /// No programs yet.
    pub fn new(sandbox: Arc<Sandbox>) -> Self {
        Self {
            sandbox,
            entries: Mutex::default(),
            compilations: AtomicU64::new(0),
        }
    }

    /// The sandbox that runs the programs.
    pub fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }

    /// How many programs were compiled or taken from the disk cache.
    pub fn compilations(&self) -> u64 {
        self.compilations.load(Ordering::Relaxed)
    }

    /// Returns the program with this address. Loads and compiles its binary if it is not in memory.
    ///
    /// The caller vouches that `load` returns the binary that the address names.
    pub async fn get<E>(
        &self,
        address: Address,
        load: impl Future<Output = Result<Bytes, E>>,
    ) -> Result<Program, GetError<E>> {
        let cell = self.entries().cell(address);
        let compile = async {
            let bytes = load.await.map_err(GetError::Load)?;
            self.compilations.fetch_add(1, Ordering::Relaxed);
            let sandbox = Arc::clone(&self.sandbox);
            // One at a time: a compilation takes much memory, and a hostile binary may take minutes.
            let permit = sandbox.compiling().await;
            let compiled = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                sandbox.compile(&bytes)
            });
            match compiled.await {
                Ok(program) => program.map_err(GetError::Compile),
                Err(_) => Err(GetError::Compile(CompileError::Stopped)),
            }
        };
        let program = cell.get_or_try_init(|| compile).await.cloned();
        self.entries().tidy(&address, &cell);
        program
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn cell(&mut self, address: Address) -> Arc<OnceCell<Program>> {
        self.uses += 1;
        let entry = self.by_address.entry(address).or_insert_with(|| Entry {
            program: Arc::default(),
            used: 0,
        });
        entry.used = self.uses;
        Arc::clone(&entry.program)
    }

    /// Removes a program that could not be compiled, and the least recently used ones beyond the bounds.
    fn tidy(&mut self, address: &Address, cell: &Arc<OnceCell<Program>>) {
        let is_empty = |entry: &Entry| entry.program.get().is_none();
        // The map and the caller hold the cell. Any further holder still waits for it.
        if self.by_address.get(address).is_some_and(is_empty) && Arc::strong_count(cell) == 2 {
            self.by_address.remove(address);
        }
        loop {
            let code_bytes = |entry: &Entry| entry.program.get().map_or(0, Program::code_bytes);
            let total: usize = self.by_address.values().map(code_bytes).sum();
            if self.by_address.len() <= PROGRAMS_MAX && total <= CODE_MAX_BYTES {
                return;
            }
            let oldest = self
                .by_address
                .iter()
                .filter(|(other, _)| *other != address);
            let Some(oldest) = oldest.min_by_key(|(_, entry)| entry.used) else {
                return;
            };
            let oldest = *oldest.0;
            self.by_address.remove(&oldest);
        }
    }
}
