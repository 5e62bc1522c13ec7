//! A server process that cannot outlive the test that started it.
//!
//! Between the two stands a small shell script. It holds the reading end of a pipe whose writing end only the test process
//! holds: however that process ends, by returning, by a panic, or killed outright, the system closes the pipe, and the
//! script kills the server and removes what it left behind. The script has a process group of its own, so that an
//! interrupt at the terminal ends the test and not the script before its work is done.
//!
//! The server is killed outright because asking it to stop takes twelve seconds, and nobody reads its data again.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::KitError;
use crate::ports;
use crate::sign::Credentials;

/// Arguments: the server's directory, its ports, its program, the program's arguments.
///
/// The server listens on Unix sockets in `/tmp` as well, named after its ports, and does not remove them when it is
/// killed. The test for `exit-status` keeps a process id from being killed that may belong to another process by now.
const SUPERVISOR: &str = r#"
exec 3<&0 </dev/null
dir=$1 ports=$2
shift 2
"$@" >"$dir/weed.log" 2>&1 3<&- &
server=$!
(
    cat <&3 >/dev/null
    [ -e "$dir/exit-status" ] || kill -9 "$server"
) &
wait "$server"
echo "$?" >"$dir/exit-status"
wait
for port in $ports; do rm -f /tmp/seaweedfs-*-"$port".sock; done
rm -rf "$dir"
"#;

/// The ports of the server's eight listeners.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) master: u16,
    pub(crate) master_grpc: u16,
    pub(crate) volume: u16,
    pub(crate) volume_grpc: u16,
    pub(crate) filer: u16,
    pub(crate) filer_grpc: u16,
    pub(crate) s3: u16,
    pub(crate) s3_grpc: u16,
}

impl Ports {
    /// Ports that are free at this moment.
    pub(crate) fn free() -> Result<Self, KitError> {
        let [
            master,
            master_grpc,
            volume,
            volume_grpc,
            filer,
            filer_grpc,
            s3,
            s3_grpc,
        ] = ports::free()?;
        Ok(Self {
            master,
            master_grpc,
            volume,
            volume_grpc,
            filer,
            filer_grpc,
            s3,
            s3_grpc,
        })
    }

    fn all(self) -> [u16; 8] {
        [
            self.master,
            self.master_grpc,
            self.volume,
            self.volume_grpc,
            self.filer,
            self.filer_grpc,
            self.s3,
            self.s3_grpc,
        ]
    }
}

/// A running server with its data. Dropping it kills the one and removes the other.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    supervisor: Child,
    dir: PathBuf,
}

impl ServerProcess {
    /// Starts the server with a new data directory below `parent`. It answers some seconds later.
    pub(crate) fn spawn(
        program: &Path,
        parent: &Path,
        ports: Ports,
        credentials: &Credentials,
    ) -> Result<Self, KitError> {
        fs::create_dir_all(parent).map_err(KitError::io("create", parent))?;
        let dir = tempfile::Builder::new()
            .prefix("seaweedfs-")
            .tempdir_in(parent)
            .map_err(KitError::io("create a directory in", parent))?;
        let data = dir.path().join("data");
        fs::create_dir(&data).map_err(KitError::io("create", &data))?;
        let config = dir.path().join("s3.json");
        fs::write(&config, identities(credentials)).map_err(KitError::io("write", &config))?;

        let supervisor = Command::new("/bin/sh")
            .args(["-c", SUPERVISOR, "seaweedfs-supervisor"])
            .arg(dir.path())
            .arg(ports.all().map(|port| port.to_string()).join(" "))
            .arg(program)
            .args(arguments(ports, &data, &config))
            .current_dir(dir.path())
            // Nothing of the caller's environment may change how the server behaves or who may log in.
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", dir.path())
            .env("TMPDIR", dir.path())
            // One volume for each new bucket; with the default of seven, the fifteenth bucket is refused.
            .env("WEED_MASTER_VOLUME_GROWTH_COPY_1", "1")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(KitError::io("start", "/bin/sh"))?;
        // From here on the supervisor removes the directory.
        Ok(Self {
            supervisor,
            dir: dir.keep(),
        })
    }

    /// The server's exit status, once it has ended by itself.
    pub(crate) fn exit_status(&self) -> Option<String> {
        let status = fs::read_to_string(self.dir.join("exit-status")).ok()?;
        // The file is there a moment before its content.
        Some(status.trim().to_owned()).filter(|status| !status.is_empty())
    }

    /// The last lines of the server's log.
    pub(crate) fn log_tail(&self) -> String {
        const LINES: usize = 30;
        let log = fs::read(self.dir.join("weed.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    /// Where the server's data is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Waiting closes the pipe first, which is the supervisor's signal. There is nobody to report a failure to.
        let _ = self.supervisor.wait();
    }
}

/// Everybody who may use the server, and for what.
fn identities(credentials: &Credentials) -> String {
    json!({
        "identities": [{
            "name": "admin",
            "credentials": [{"accessKey": credentials.access_key, "secretKey": credentials.secret_key}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }]
    })
    .to_string()
}

fn arguments(ports: Ports, data: &Path, config: &Path) -> Vec<String> {
    vec![
        "-logtostderr=true".into(),
        "server".into(),
        format!("-dir={}", data.display()),
        "-ip=127.0.0.1".into(),
        "-ip.bind=127.0.0.1".into(),
        format!("-master.port={}", ports.master),
        format!("-master.port.grpc={}", ports.master_grpc),
        "-master.volumeSizeLimitMB=128".into(),
        // A test tells nobody of itself.
        "-master.telemetry=false".into(),
        format!("-volume.port={}", ports.volume),
        format!("-volume.port.grpc={}", ports.volume_grpc),
        "-volume.max=2000".into(),
        "-volume.preStopSeconds=1".into(),
        format!("-filer.port={}", ports.filer),
        format!("-filer.port.grpc={}", ports.filer_grpc),
        "-s3".into(),
        format!("-s3.port={}", ports.s3),
        format!("-s3.port.grpc={}", ports.s3_grpc),
        "-s3.port.iceberg=0".into(),
        "-s3.port.lance=0".into(),
        format!("-s3.config={}", config.display()),
    ]
}
