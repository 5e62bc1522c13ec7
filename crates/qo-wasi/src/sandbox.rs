//! The sandbox: compiles programs and runs them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::{Config, Engine, Store, WasmBacktrace};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{I32Exit, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::disk_cache::{DiskCache, DiskCacheError};
use crate::error::{BadProgram, CompileError, RunError};
use crate::grants::Grants;
use crate::limits::{Limiter, Limits};
use crate::program::{Code, Linkers, Program, one_line};
use crate::stderr::Tail;
use crate::stdin::{Input, Stdin};
use crate::stdout::{self, Output, Stdout};
use crate::ticker::Ticker;

/// Maximum bytes that one system call may copy from the program.
const SYSTEM_CALL_MAX_BYTES: usize = 16 << 20;
/// Maximum random bytes of one system call.
const RANDOM_MAX_BYTES: u64 = 1 << 20;
/// Maximum number of open files, streams, timers and sockets.
const RESOURCES_MAX: usize = 4_096;

/// Settings of a sandbox.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SandboxConfig {
    /// Limits of each run.
    pub limits: Limits,
    /// What programs may use.
    pub grants: Grants,
    /// Where compiled programs are kept. Other users must have no access to this directory.
    pub cache: Option<PathBuf>,
}

/// The sandbox could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The cache directory cannot be used.
    #[error(transparent)]
    Cache(#[from] DiskCacheError),
    /// The engine does not work on this machine.
    #[error("cannot start the WebAssembly engine: {0}")]
    Engine(String),
}

/// Compiles and runs programs.
pub struct Sandbox {
    engine: Engine,
    linkers: Linkers,
    ticker: Ticker,
    disk_cache: Option<DiskCache>,
    compiling: Arc<Semaphore>,
    limits: Limits,
    grants: Grants,
}

/// How a program ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code.
    pub code: i32,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The exit code, or why there is none.
    pub result: Result<Exit, RunError>,
    /// The end of standard error, at most 8 KiB.
    pub stderr: Vec<u8>,
}

/// A run. Dropping it ends the program.
pub struct ProgramRun {
    /// Standard output. The program waits while nobody reads it.
    pub output: Output,
    /// Runs the program. Dropping this future ends it.
    pub ended: BoxFuture<'static, Ended>,
}

impl fmt::Debug for ProgramRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramRun").finish_non_exhaustive()
    }
}

/// What a running program can reach.
pub(crate) struct State {
    wasi: WasiP1Ctx,
    limiter: Limiter,
}

impl State {
    pub(crate) fn preview1(&mut self) -> &mut WasiP1Ctx {
        &mut self.wasi
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.ctx()
    }
}

impl Sandbox {
    /// Creates a sandbox.
    pub fn new(config: SandboxConfig) -> Result<Self, SandboxError> {
        let SandboxConfig {
            limits,
            grants,
            cache,
        } = config;
        let broken = |error: wasmtime::Error| SandboxError::Engine(format!("{error:#}"));
        let disk_cache = cache.map(|path| DiskCache::open(&path)).transpose()?;
        let mut engine = Config::new();
        engine.epoch_interruption(true);
        engine.cache(disk_cache.as_ref().map(DiskCache::cache));
        let engine = Engine::new(&engine).map_err(broken)?;
        let ticker = Ticker::start(engine.clone());
        Ok(Self {
            linkers: Linkers::new(&engine).map_err(broken)?,
            ticker: ticker.map_err(|error| SandboxError::Engine(error.to_string()))?,
            engine,
            disk_cache,
            compiling: Arc::new(Semaphore::new(1)),
            limits,
            grants,
        })
    }

    /// The limits of each run.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How often a compiled program was found on disk.
    pub fn disk_cache_hits(&self) -> usize {
        self.disk_cache.as_ref().map_or(0, DiskCache::hits)
    }

    /// Compiles a binary. This takes a while and must not happen on a thread of an async runtime.
    pub fn compile(&self, bytes: &[u8]) -> Result<Program, CompileError> {
        let size = bytes.len() as u64;
        if size > self.limits.program_bytes {
            let limit = self.limits.program_bytes;
            return Err(BadProgram::TooLarge { bytes: size, limit }.into());
        }
        let compile = || self.linkers.compile(&self.engine, bytes);
        let compiled = match &self.disk_cache {
            Some(cache) => cache
                .around(compile)
                .map_err(|error| CompileError::Cache(error.to_string()))?,
            None => compile(),
        };
        Ok(compiled?)
    }

    /// Waits until no other program is being compiled.
    pub(crate) async fn compiling(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.compiling).acquire_owned().await.ok()
    }

    /// Starts a program. `arguments` begins with its name.
    pub fn run(
        self: &Arc<Self>,
        program: Program,
        arguments: Vec<String>,
        input: Input,
    ) -> ProgramRun {
        let (stdout, output) = stdout::pipe(self.limits.output_bytes);
        let stderr = Tail::default();
        let sandbox = Arc::clone(self);
        let guard = OutputGuard(stdout.clone());
        let ended = async move {
            let streams = Streams {
                stdin: Stdin::new(input),
                stdout,
                stderr: stderr.clone(),
            };
            let result = sandbox.run_to_end(program, &arguments, &streams).await;
            guard.0.end(result.is_ok());
            Ended {
                result,
                stderr: stderr.bytes(),
            }
        };
        ProgramRun {
            output,
            ended: ended.boxed(),
        }
    }

    async fn run_to_end(
        &self,
        program: Program,
        arguments: &[String],
        streams: &Streams,
    ) -> Result<Exit, RunError> {
        let setup = |detail| RunError::Setup { detail };
        let mut wasi = WasiCtxBuilder::new();
        wasi.args(arguments)
            .stdin(streams.stdin.clone())
            .stdout(streams.stdout.clone())
            .stderr(streams.stderr.clone())
            .max_random_size(RANDOM_MAX_BYTES);
        self.grants.apply(&mut wasi).map_err(setup)?;
        let mut wasi = wasi.build_p1();
        wasi.ctx().table.set_max_capacity(RESOURCES_MAX);
        let limiter = Limiter::new(&self.limits);
        let refused = limiter.refused();
        let mut store = Store::new(&self.engine, State { wasi, limiter });
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(SYSTEM_CALL_MAX_BYTES);
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        let _running = self.ticker.running();
        let result = call(&program.code, &mut store).await;
        result.or_else(|error| self.explain(&error, streams, &refused))
    }

    /// Turns the end of a program into its exit code or the reason that it has none.
    fn explain(
        &self,
        error: &wasmtime::Error,
        streams: &Streams,
        refused: &AtomicBool,
    ) -> Result<Exit, RunError> {
        if let Some(I32Exit(code)) = error.downcast_ref::<I32Exit>() {
            return Ok(Exit { code: *code });
        }
        if streams.stdout.is_over_limit() {
            let limit = self.limits.output_bytes;
            return Err(RunError::OutputLimit { limit });
        }
        if let Some(detail) = streams.stdin.failure() {
            let detail = detail.to_owned();
            return Err(RunError::Input { detail });
        }
        if streams.stdout.reader_is_gone() {
            return Err(RunError::OutputDropped);
        }
        let detail = trap(error);
        Err(if refused.load(Ordering::Relaxed) {
            RunError::MemoryLimit {
                limit: self.limits.memory_bytes,
                detail,
            }
        } else {
            RunError::Trap { detail }
        })
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox")
            .field("limits", &self.limits)
            .field("grants", &self.grants)
            .finish_non_exhaustive()
    }
}

struct Streams {
    stdin: Stdin,
    stdout: Stdout,
    stderr: Tail,
}

/// Ends the output of a run whose future is dropped.
struct OutputGuard(Stdout);

impl Drop for OutputGuard {
    fn drop(&mut self) {
        self.0.end(false);
    }
}

/// Instantiates the program and calls its entry point.
async fn call(code: &Code, store: &mut Store<State>) -> wasmtime::Result<Exit> {
    match code {
        Code::Module(module) => {
            let instance = module.instantiate_async(&mut *store).await?;
            let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
            start.call_async(&mut *store, ()).await?;
            Ok(Exit { code: 0 })
        }
        Code::Component(component) => {
            let command = component.instantiate_async(&mut *store).await?;
            let result = command.wasi_cli_run().call_run(&mut *store).await?;
            let code = i32::from(result.is_err());
            Ok(Exit { code })
        }
    }
}

/// The reason of a trap, and the function in which it occurred.
fn trap(error: &wasmtime::Error) -> String {
    let reason = error.root_cause().to_string();
    let reason = reason.strip_prefix("wasm trap: ").unwrap_or(&reason);
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    let function = backtrace
        .and_then(|backtrace| backtrace.frames().first())
        .and_then(|frame| frame.func_name());
    match function {
        Some(function) => one_line(&format!("{reason}, in {function}")),
        None => one_line(reason),
    }
}
