//! Errors of this crate, each with advice.

use std::io;
use std::path::PathBuf;

/// Why a test cannot get a server or a tool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KitError {
    /// Python, which installs the server, is missing.
    #[error(
        "cannot run `{program}` ({source}): install Python 3.8 or later (on Debian: `apt-get install python3 python3-venv`)"
    )]
    PythonMissing {
        /// The program that was tried.
        program: String,
        /// Why it did not start.
        source: io::Error,
    },
    /// Python cannot make a virtual environment.
    #[error(
        "`python3 -m venv` failed: install Python's venv module (on Debian: `apt-get install python3-venv`). It said:\n{output}"
    )]
    VenvFailed {
        /// The end of what it printed.
        output: String,
    },
    /// A package could not be installed.
    #[error(
        "`pip install {package}` failed: check that pip can reach its package index. It said:\n{output}"
    )]
    PipFailed {
        /// The package and its version.
        package: String,
        /// The end of what it printed.
        output: String,
    },
    /// npm is missing or could not install a package.
    #[error(
        "`npm install {package}` failed: install Node.js with npm, and check that npm can reach its registry. It said:\n{output}"
    )]
    NpmFailed {
        /// The package and its version.
        package: String,
        /// The end of what it printed.
        output: String,
    },
    /// The package was installed, and holds no program that runs here.
    #[error("{package} has no program that runs on this machine: {reason}")]
    ProgramUnusable {
        /// The package and its version.
        package: String,
        /// The attempts and their results.
        reason: String,
    },
    /// A file or a process could not be handled.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No free port was found.
    #[error("no free port on 127.0.0.1 after {tries} tries")]
    NoFreePort {
        /// The number of attempts.
        tries: usize,
    },
    /// The machine's source of random numbers failed.
    #[error("the system's random number generator failed")]
    NoRandomness,
    /// The server exited before it responded, on every set of ports.
    #[error(
        "{server} ended with status {status} before it responded, at each of {tries} attempts. The end of its log:\n{log}"
    )]
    ServerEnded {
        /// The name of the server.
        server: &'static str,
        /// Its exit status.
        status: String,
        /// The number of starts.
        tries: usize,
        /// The end of its log.
        log: String,
    },
    /// The server runs and does not respond as it should.
    #[error("{server} was not ready after {limit_s} s: {last}. The end of its log:\n{log}")]
    ServerNotReady {
        /// The name of the server.
        server: &'static str,
        /// The waiting time.
        limit_s: u64,
        /// The result of the last request.
        last: String,
        /// The end of its log.
        log: String,
    },
    /// The environment names a server incompletely or in an unsupported form.
    #[error("{0}")]
    Environment(String),
    /// A name that no bucket can have.
    #[error(
        "{0:?} is no bucket name: 3 to 63 lower-case letters, digits and hyphens, starting and ending with no hyphen"
    )]
    BucketName(String),
    /// The server could not be reached.
    #[error("{request} on {host}: {source}")]
    Unreachable {
        /// Method and path.
        request: String,
        /// Host and port of the server.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The server refused.
    #[error("{request} answered {status}: {body}")]
    Refused {
        /// Method and path.
        request: String,
        /// The HTTP status.
        status: u16,
        /// The response body.
        body: String,
    },
}

impl KitError {
    /// For `map_err` on a file operation.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
