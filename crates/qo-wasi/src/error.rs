//! Why a program could not run, or failed.

/// A binary that is not a program that this crate runs. The same bytes will never be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadProgram {
    /// It is not WebAssembly.
    #[error("it is not a WebAssembly binary{}", hint.map(|hint| format!("; {hint}")).unwrap_or_default())]
    NotWasm {
        /// What it seems to be.
        hint: Option<&'static str>,
    },
    /// It is larger than allowed.
    #[error("it has {bytes} bytes; at most {limit} are allowed")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// It is WebAssembly, but no command.
    #[error("it is not a WASI command: {what}")]
    WrongKind {
        /// What it is instead.
        what: String,
    },
    /// It is malformed, uses an unsupported extension of WebAssembly or imports something that does not exist.
    #[error("it cannot be run: {detail}")]
    Invalid {
        /// What is wrong.
        detail: String,
    },
}

/// Why a binary was not compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// It is no program.
    #[error(transparent)]
    Bad(#[from] BadProgram),
    /// The cache directory has a damaged file that cannot be deleted.
    #[error("the cache of compiled programs cannot be used: {0}")]
    Cache(String),
    /// The thread that compiled it was stopped.
    #[error("the compilation was stopped")]
    Stopped,
}

/// Why a run failed. An exit code other than 0 is an [`Exit`](crate::Exit), not an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The program crashed.
    #[error("the program trapped: {detail}")]
    Trap {
        /// What happened, and in which function.
        detail: String,
    },
    /// The program asked for more memory than allowed, and could not continue without it.
    #[error("the program reached the memory limit of {limit} bytes: {detail}")]
    MemoryLimit {
        /// The limit of the run.
        limit: u64,
        /// What happened then.
        detail: String,
    },
    /// The program wrote more than allowed.
    #[error("the program wrote more than {limit} bytes to standard output")]
    OutputLimit {
        /// The limit of the run.
        limit: u64,
    },
    /// The input could not be read to its end.
    #[error("cannot read the input: {detail}")]
    Input {
        /// The error of the input stream.
        detail: String,
    },
    /// The reader of the output went away.
    #[error("the output was not read completely")]
    OutputDropped,
    /// The worker could not prepare the run, for instance open a granted directory.
    #[error("cannot start the program: {detail}")]
    Setup {
        /// What went wrong.
        detail: String,
    },
}
