//! The SeaweedFS process: its ports, its users and its arguments.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::KitError;
use crate::ports;
use crate::process::ServerProcess;
use crate::sign::Credentials;

/// The ports of the server's eight listeners.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports([u16; 8]);

impl Ports {
    /// Ports that are free at this moment.
    pub(crate) fn free() -> Result<Self, KitError> {
        ports::free().map(Self)
    }

    /// The port of the S3 interface.
    pub(crate) fn s3(self) -> u16 {
        self.0[0]
    }

    /// The arguments of a shell that connects to the server.
    pub(crate) fn shell_arguments(self) -> String {
        let [_, _, master, master_grpc, filer, filer_grpc, ..] = self.0;
        format!("-master=127.0.0.1:{master}.{master_grpc} -filer=127.0.0.1:{filer}.{filer_grpc}")
    }
}

/// Starts the server with a new data directory below `parent`.
pub(crate) fn spawn(
    program: &Path,
    parent: &Path,
    ports: Ports,
    credentials: &Credentials,
) -> Result<ServerProcess, KitError> {
    let dir = ServerProcess::directory(parent, "seaweedfs")?;
    let data = dir.path().join("data");
    fs::create_dir(&data).map_err(KitError::io("create", &data))?;
    let config = dir.path().join("s3.json");
    fs::write(&config, identities(credentials)).map_err(KitError::io("write", &config))?;
    // It also listens on Unix sockets named after its ports, and does not remove them when it is killed.
    let sockets = ports
        .0
        .map(|port| format!("/tmp/seaweedfs-*-{port}.sock"))
        .join(" ");
    // One volume for each new bucket; with the default of seven, the fifteenth bucket is refused.
    let environment = [("WEED_MASTER_VOLUME_GROWTH_COPY_1", "1")];
    let arguments = arguments(ports, &data, &config);
    ServerProcess::spawn(dir, program, &arguments, &environment, &sockets)
}

/// The users of the server and their rights.
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
    let [
        s3,
        s3_grpc,
        master,
        master_grpc,
        filer,
        filer_grpc,
        volume,
        volume_grpc,
    ] = ports.0;
    vec![
        "-logtostderr=true".into(),
        "server".into(),
        format!("-dir={}", data.display()),
        "-ip=127.0.0.1".into(),
        "-ip.bind=127.0.0.1".into(),
        format!("-master.port={master}"),
        format!("-master.port.grpc={master_grpc}"),
        "-master.volumeSizeLimitMB=128".into(),
        // Tests send no telemetry.
        "-master.telemetry=false".into(),
        format!("-volume.port={volume}"),
        format!("-volume.port.grpc={volume_grpc}"),
        "-volume.max=2000".into(),
        "-volume.preStopSeconds=1".into(),
        format!("-filer.port={filer}"),
        format!("-filer.port.grpc={filer_grpc}"),
        "-s3".into(),
        format!("-s3.port={s3}"),
        format!("-s3.port.grpc={s3_grpc}"),
        "-s3.port.iceberg=0".into(),
        "-s3.port.lance=0".into(),
        format!("-s3.config={}", config.display()),
    ]
}
