//! Loads the encryption keys from the configured source.

use std::time::Duration;

use qo::encryption::Keyring;
use qo_store::runtime::Runtime;
use qo_store::shell_command;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::config::{KeySource, Setting};
use crate::failure::{Failure, FailureKind};

/// The time limit of a key command.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The size limit of its output.
const OUTPUT_MAX_BYTES: u64 = 64 * 1024;

/// Loads the keys. No failure contains any of them.
pub(crate) async fn load(
    source: &Setting<KeySource>,
    runtime: &dyn Runtime,
) -> Result<Keyring, Failure> {
    let loaded = match &source.value {
        KeySource::Text(text) => Keyring::parse(text),
        KeySource::File(path) => Keyring::read(path),
        KeySource::Command(command) => {
            let printed = printed_by(command, runtime).await.map_err(|why| {
                Failure::new(FailureKind::Denied, format!("the key command {why}")).hint(format!(
                    "it comes from {}; run it by hand to see what it prints",
                    source.origin
                ))
            })?;
            Keyring::parse(&printed)
        }
    };
    loaded.map_err(|error| {
        Failure::bad_input(format!("cannot use the encryption keys: {error}"))
            .hint(format!("they come from {}", source.origin))
    })
}

/// What a command prints to standard output. Its standard error is that of this process, so that it can explain itself.
async fn printed_by(command: &str, runtime: &dyn Runtime) -> Result<String, String> {
    let mut child = Command::from(shell_command(command))
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("could not be started: {error}"))?;
    let mut printed = String::new();
    let running = async {
        if let Some(stdout) = child.stdout.take() {
            let mut stdout = stdout.take(OUTPUT_MAX_BYTES + 1);
            let read = stdout.read_to_string(&mut printed).await;
            read.map_err(|_| "printed something that is not text".to_owned())?;
        }
        if printed.len() as u64 > OUTPUT_MAX_BYTES {
            return Err(format!("printed more than {OUTPUT_MAX_BYTES} bytes"));
        }
        match child.wait().await {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("failed with {status}")),
            Err(error) => Err(format!("was lost: {error}")),
        }
    };
    tokio::select! {
        biased;
        ended = running => ended?,
        () = runtime.sleep(TIMEOUT) => {
            return Err(format!("did not finish within {} s", TIMEOUT.as_secs()));
        }
    }
    Ok(printed)
}
