//! The S3 server of qo's tests.

use std::env;
use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use crate::KitError;
use crate::clock;
use crate::install::install;
use crate::process::{ServerProcess, death_in, watch_directory};
use crate::random;
use crate::request::{self, HttpRequest};
use crate::seaweedfs_process::{Ports, spawn};
use crate::sign::{self, Credentials, Signable};
use crate::target_dir::target_dir;

const NAME: &str = "SeaweedFS";
/// Short, because whoever took the server's port may accept connections and never answer.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// Generous, because a machine that runs tests is a busy one.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Each with other ports. A second is rarely needed.
const MAX_STARTS: usize = 4;

const ENDPOINT_VARIABLE: &str = "QO_TEST_S3_ENDPOINT";
const ACCESS_KEY_VARIABLE: &str = "QO_TEST_S3_ACCESS_KEY";
const SECRET_KEY_VARIABLE: &str = "QO_TEST_S3_SECRET_KEY";
const SHELL_VARIABLE: &str = "QO_TEST_S3_SHELL";
const DIRECTORY_VARIABLE: &str = "QO_TEST_S3_DIRECTORY";
/// The exit status of a test process whose server has died.
const DIED_EXIT_STATUS: i32 = 86;

/// A SeaweedFS server with an S3 interface on a loopback port, and credentials of its own.
///
/// It lives as long as this value, and never longer than this process, however that ends.
pub struct SeaweedFs {
    endpoint: String,
    credentials: Credentials,
    /// Absent if somebody else runs the server.
    process: Option<ServerProcess>,
    /// The directory of a server that another process on this machine runs. It shows whether the server has died.
    directory: Option<PathBuf>,
    /// How its own shell is started.
    shell: Option<String>,
    timeout: Duration,
}

impl SeaweedFs {
    /// Installs the server if need be, starts it, and returns when objects can be written to it. If it dies later, that is printed
    /// at once, with its exit status and the end of its log.
    pub fn start() -> Result<Self, KitError> {
        Self::start_reporting(|death| print_death(&death))
    }

    /// Starts the server, and calls `report` if it dies later.
    pub fn start_reporting(
        report: impl FnOnce(KitError) + Send + 'static,
    ) -> Result<Self, KitError> {
        let server = Self::start_unwatched()?;
        if let Some(process) = &server.process {
            process.watch(|status, log| {
                report(KitError::ServerDied {
                    status: status.to_owned(),
                    log: log.to_owned(),
                });
            });
        }
        Ok(server)
    }

    fn start_unwatched() -> Result<Self, KitError> {
        let program = install()?;
        let credentials = Credentials {
            access_key: format!("qo-{}", random::hex(8)?),
            secret_key: random::hex(20)?,
        };
        let mut ended = None;
        for tries in 1..=MAX_STARTS {
            match Self::start_on(&program, Ports::free()?, &credentials, tries) {
                Err(error @ KitError::ServerEnded { .. }) => ended = Some(error),
                done => return done,
            }
        }
        Err(ended.unwrap_or(KitError::NoFreePort { tries: MAX_STARTS }))
    }

    /// The one server that everything in this process shares: the one that the environment names, or one that is
    /// started by the first caller.
    ///
    /// The environment names a server by `QO_TEST_S3_ENDPOINT` (`http://host:port`), `QO_TEST_S3_ACCESS_KEY` and
    /// `QO_TEST_S3_SECRET_KEY`; see [`SeaweedFs::environment`].
    ///
    /// If the server dies, this process says so, with the exit status and the end of the server's log, and ends: every test that needs the
    /// server would fail, with messages that do not show why. A server that another process on this machine runs is watched through its
    /// directory, which `QO_TEST_S3_DIRECTORY` names.
    pub fn shared() -> Result<&'static Self, &'static KitError> {
        Self::shared_reporting(|death| {
            print_death(&death);
            std::process::exit(DIED_EXIT_STATUS);
        })
    }

    /// As [`SeaweedFs::shared`], for a process that runs tests in other processes: it only prints that the server has died.
    pub fn shared_with_others() -> Result<&'static Self, &'static KitError> {
        Self::shared_reporting(|death| print_death(&death))
    }

    fn shared_reporting(report: fn(KitError)) -> Result<&'static Self, &'static KitError> {
        static SHARED: OnceLock<Result<SeaweedFs, KitError>> = OnceLock::new();
        SHARED
            .get_or_init(|| match Self::named_by(|name| env::var(name).ok()) {
                None => Self::start_reporting(report),
                Some(named) => named.inspect(|server| {
                    if let Some(directory) = &server.directory {
                        watch_directory(directory, report);
                    }
                }),
            })
            .as_ref()
    }

    /// What to set in another process's environment, so that [`SeaweedFs::shared`] gives this server there.
    pub fn environment(&self) -> Vec<(&'static str, &str)> {
        let mut environment = vec![
            (ENDPOINT_VARIABLE, self.endpoint()),
            (ACCESS_KEY_VARIABLE, self.access_key()),
            (SECRET_KEY_VARIABLE, self.secret_key()),
        ];
        let directory = self.data_dir().or(self.directory.as_deref());
        if let Some(directory) = directory.and_then(Path::to_str) {
            environment.push((DIRECTORY_VARIABLE, directory));
        }
        environment
    }

    /// The command line of a shell of this server's own, if this process runs it: it can do what S3 cannot, such as taking in a
    /// hundred thousand small objects in seconds.
    pub fn shell(&self) -> Option<(&'static str, &str)> {
        self.shell.as_deref().map(|shell| (SHELL_VARIABLE, shell))
    }

    /// Where it listens: `http://127.0.0.1:port`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The access key that may do everything.
    pub fn access_key(&self) -> &str {
        &self.credentials.access_key
    }

    /// The secret that belongs to [`SeaweedFs::access_key`].
    pub fn secret_key(&self) -> &str {
        &self.credentials.secret_key
    }

    /// The environment variables with which qo reaches it.
    pub fn variables(&self) -> [(&'static str, String); 5] {
        [
            ("S3_ENDPOINT", self.endpoint.clone()),
            ("S3_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", self.access_key().to_owned()),
            ("AWS_SECRET_ACCESS_KEY", self.secret_key().to_owned()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
        ]
    }

    /// Where its data is, if this process runs it.
    pub fn data_dir(&self) -> Option<&Path> {
        self.process.as_ref().map(ServerProcess::dir)
    }

    /// Makes a bucket without versions.
    pub fn create_bucket(&self, name: &str) -> Result<(), KitError> {
        check_bucket_name(name)?;
        self.send("PUT", &format!("/{name}"), None, b"")
    }

    /// Makes a bucket that keeps the versions of its objects.
    pub fn create_versioned_bucket(&self, name: &str) -> Result<(), KitError> {
        const ENABLED: &[u8] = b"<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Status>Enabled</Status></VersioningConfiguration>";
        self.create_bucket(name)?;
        self.send("PUT", &format!("/{name}"), Some("versioning"), ENABLED)
    }

    /// Makes a bucket without versions whose name starts with `hint` and is nobody else's, and gives that name.
    pub fn unique_bucket(&self, hint: &str) -> Result<String, KitError> {
        let name = unique_name(hint)?;
        self.create_bucket(&name)?;
        Ok(name)
    }

    /// Makes a bucket that keeps versions, whose name starts with `hint` and is nobody else's, and gives that name.
    pub fn unique_versioned_bucket(&self, hint: &str) -> Result<String, KitError> {
        let name = unique_name(hint)?;
        self.create_versioned_bucket(&name)?;
        Ok(name)
    }

    /// Removes a bucket with all that is in it.
    pub fn delete_bucket(&self, name: &str) -> Result<(), KitError> {
        check_bucket_name(name)?;
        self.send("DELETE", &format!("/{name}"), None, b"")
    }

    fn start_on(
        program: &Path,
        ports: Ports,
        credentials: &Credentials,
        tries: usize,
    ) -> Result<Self, KitError> {
        let process = spawn(program, &target_dir().join("tools/run"), ports, credentials)?;
        let mut server = Self {
            endpoint: format!("http://127.0.0.1:{}", ports.s3()),
            credentials: credentials.clone(),
            process: Some(process),
            directory: None,
            shell: Some(format!(
                "{} shell {}",
                program.display(),
                ports.shell_arguments()
            )),
            timeout: READY_TIMEOUT,
        };
        server.wait_until_ready(tries)?;
        server.timeout = TIMEOUT;
        Ok(server)
    }

    /// Waits until the server takes an object, not only a connection. Its credentials are its own, so the answer
    /// cannot be that of another server that took the port.
    fn wait_until_ready(&self, tries: usize) -> Result<(), KitError> {
        let Some(process) = &self.process else {
            return Ok(());
        };
        process.wait_until_ready(NAME, tries, || self.write_something())
    }

    fn write_something(&self) -> Result<(), KitError> {
        self.send("GET", "/", None, b"")?;
        let bucket = self.unique_bucket("ready")?;
        self.send("PUT", &format!("/{bucket}/ready"), None, b"ready")?;
        self.delete_bucket(&bucket)
    }

    /// The server that the environment names, if it names one.
    fn named_by(variable: impl Fn(&str) -> Option<String>) -> Option<Result<Self, KitError>> {
        let endpoint = variable(ENDPOINT_VARIABLE).filter(|endpoint| !endpoint.is_empty())?;
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        if !endpoint.starts_with("http://") {
            let message =
                format!("{ENDPOINT_VARIABLE} is {endpoint:?}: it must be http://host:port");
            return Some(Err(KitError::Environment(message)));
        }
        let (Some(access_key), Some(secret_key)) =
            (variable(ACCESS_KEY_VARIABLE), variable(SECRET_KEY_VARIABLE))
        else {
            let message = format!(
                "{ENDPOINT_VARIABLE} is set: set {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} too"
            );
            return Some(Err(KitError::Environment(message)));
        };
        Some(Ok(Self {
            endpoint,
            credentials: Credentials {
                access_key,
                secret_key,
            },
            process: None,
            directory: variable(DIRECTORY_VARIABLE)
                .filter(|directory| !directory.is_empty())
                .map(PathBuf::from),
            shell: variable(SHELL_VARIABLE).filter(|shell| !shell.is_empty()),
            timeout: TIMEOUT,
        }))
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        subresource: Option<&str>,
        body: &[u8],
    ) -> Result<(), KitError> {
        let host = self
            .endpoint
            .strip_prefix("http://")
            .unwrap_or(&self.endpoint);
        let query = subresource
            .map(|name| format!("?{name}"))
            .unwrap_or_default();
        let target = format!("{path}{query}");
        let signable = Signable {
            method,
            host,
            path,
            subresource,
            body,
        };
        let headers = sign::headers(signable, &self.credentials, clock::unix_now_s());
        let request = HttpRequest {
            method,
            host,
            target: &target,
            headers: &headers,
            body,
        };
        request::send(request, self.timeout).map_err(|error| match &self.process {
            // A server that has died refuses connections; its own words say more.
            Some(process) => death_in(process.dir()).unwrap_or(error),
            None => self
                .directory
                .as_deref()
                .and_then(death_in)
                .unwrap_or(error),
        })
    }
}

fn print_death(death: &KitError) {
    // Not `eprintln!`, whose output the test harness holds back until the test ends.
    let _ = writeln!(io::stderr(), "\n{death}\n");
}

/// Without the secret: the environment may name a server that matters to somebody.
impl fmt::Debug for SeaweedFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeaweedFs")
            .field("endpoint", &self.endpoint)
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

fn check_bucket_name(name: &str) -> Result<(), KitError> {
    let valid = (3..=63).contains(&name.len())
        && name
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !name.starts_with('-')
        && !name.ends_with('-');
    if valid {
        Ok(())
    } else {
        Err(KitError::BucketName(name.to_owned()))
    }
}

/// A valid bucket name from any hint.
fn unique_name(hint: &str) -> Result<String, KitError> {
    let readable: String = hint
        .chars()
        .take(40)
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    Ok(format!("t{readable}-{}", random::hex(8)?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn named_by(pairs: &[(&str, &str)]) -> Option<Result<SeaweedFs, KitError>> {
        SeaweedFs::named_by(|name| {
            pairs
                .iter()
                .find(|pair| pair.0 == name)
                .map(|pair| pair.1.to_owned())
        })
    }

    #[test]
    fn the_environment_names_a_server_completely_or_not_at_all() {
        assert!(named_by(&[]).is_none());
        assert!(named_by(&[(ENDPOINT_VARIABLE, "")]).is_none());
        assert!(matches!(
            named_by(&[(ENDPOINT_VARIABLE, "http://h:1")]),
            Some(Err(KitError::Environment(_)))
        ));
        assert!(matches!(
            named_by(&[(ENDPOINT_VARIABLE, "https://h:1")]),
            Some(Err(KitError::Environment(_)))
        ));

        let whole = [
            (ENDPOINT_VARIABLE, "http://h:1/"),
            (ACCESS_KEY_VARIABLE, "a"),
            (SECRET_KEY_VARIABLE, "s3cret"),
        ];
        let server = named_by(&whole).unwrap().unwrap();
        let values: Vec<&str> = server.environment().iter().map(|pair| pair.1).collect();
        assert_eq!(values, ["http://h:1", "a", "s3cret"]);
        assert!(!format!("{server:?}").contains("s3cret"));
    }

    #[test]
    fn any_hint_makes_a_bucket_name_and_bad_names_are_refused() {
        for hint in ["", "UPPER case_1", "ünïcödé", "--", &"x".repeat(100)] {
            let name = unique_name(hint).unwrap();
            check_bucket_name(&name).unwrap();
            assert_ne!(name, unique_name(hint).unwrap());
        }
        for name in [
            "",
            "ab",
            "-abc",
            "abc-",
            "Abc",
            "a/b/c",
            "a?b",
            &"x".repeat(64),
        ] {
            assert!(
                matches!(check_bucket_name(name), Err(KitError::BucketName(_))),
                "{name}"
            );
        }
    }

    /// What makes [`SeaweedFs::start`] try again: somebody else took a port, and the server says so and ends.
    #[test]
    fn a_taken_port_ends_the_server_and_its_data_with_it() {
        let program = install().unwrap();
        let credentials = Credentials {
            access_key: "a".into(),
            secret_key: "s".into(),
        };
        let ports = Ports::free().unwrap();
        let taken = TcpListener::bind(("127.0.0.1", ports.s3())).unwrap();
        let error = SeaweedFs::start_on(&program, ports, &credentials, 1).unwrap_err();
        assert!(matches!(error, KitError::ServerEnded { .. }), "{error}");
        assert!(
            error.to_string().contains("address already in use"),
            "{error}"
        );
        drop(taken);
    }
}
