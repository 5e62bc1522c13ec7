//! Credentials from a program: the `credential_process` of an AWS profile.
//!
//! The shell runs the program, as with the AWS tools, and the program prints a JSON object of version 1. Its output and
//! its run time are bounded. The credentials are cached until shortly before they expire. Only one caller runs the program
//! at a time; the others wait for its result.

use std::fmt;
use std::io::Read;
use std::process::Stdio;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use qo_core::Timestamp;
use serde::Deserialize;
use thiserror::Error;
use tokio::sync::Mutex;

use super::cloud::is_header_value;
use crate::runtime::Runtime;
use crate::shell::shell_command;

/// The time limit of the program.
const TIMEOUT: Duration = Duration::from_mins(1);
/// How often to poll for the program's exit after it has closed its output.
const EXIT_POLLS: u32 = 100;
const EXIT_POLL: Duration = Duration::from_millis(20);
/// The size limit of the program's output.
const MAX_OUTPUT_BYTES: u64 = 64 * 1024;
/// Credentials are renewed this long before they expire.
const REFRESH_BEFORE_MS: u64 = 5 * 60 * 1000;

/// Why the program returned no credentials. Contains none of the program's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum ProcessError {
    #[error("it could not be started")]
    NotStarted,
    #[error("it did not finish within 60 s")]
    TimedOut,
    #[error("it printed more than 64 KiB")]
    TooMuch,
    #[error("it failed")]
    Failed,
    #[error("its output is not the JSON object of version 1 with AccessKeyId and SecretAccessKey")]
    Malformed,
    #[error("the credentials have expired")]
    Expired,
}

/// The failure of a credential process, with its profile.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the credential_process of AWS profile {profile:?} returned no credentials: {cause}")]
pub(crate) struct CredentialProcessError {
    profile: String,
    cause: ProcessError,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Output {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

struct CachedCredential {
    credential: Arc<AwsCredential>,
    expires: Option<Timestamp>,
}

/// Runs a program for credentials and caches them until they expire.
pub(crate) struct ProcessCredentials {
    profile: String,
    command: String,
    runtime: Arc<dyn Runtime>,
    held: Mutex<Option<CachedCredential>>,
}

impl fmt::Debug for ProcessCredentials {
    /// Omits the command line, which may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessCredentials")
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

impl ProcessCredentials {
    pub(crate) fn new(profile: &str, command: &str, runtime: Arc<dyn Runtime>) -> Self {
        Self {
            profile: profile.to_owned(),
            command: command.to_owned(),
            runtime,
            held: Mutex::new(None),
        }
    }

    async fn fetch(&self) -> Result<CachedCredential, ProcessError> {
        let command = self.command.clone();
        let output = tokio::task::spawn_blocking(move || run(&command, TIMEOUT))
            .await
            .map_err(|_| ProcessError::Failed)??;
        let held = parse(&output)?;
        if held
            .expires
            .is_some_and(|expires| expires <= self.runtime.now())
        {
            return Err(ProcessError::Expired);
        }
        Ok(held)
    }
}

#[async_trait]
impl CredentialProvider for ProcessCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut held = self.held.lock().await;
        let fresh_until = self.runtime.now().plus_millis(REFRESH_BEFORE_MS);
        if let Some(held) = &*held
            && held.expires.is_none_or(|expires| expires > fresh_until)
        {
            return Ok(Arc::clone(&held.credential));
        }
        let fetched = self
            .fetch()
            .await
            .map_err(|cause| object_store::Error::Generic {
                store: "S3",
                source: Box::new(CredentialProcessError {
                    profile: self.profile.clone(),
                    cause,
                }),
            })?;
        let credential = Arc::clone(&fetched.credential);
        *held = Some(fetched);
        Ok(credential)
    }
}

fn parse(output: &[u8]) -> Result<CachedCredential, ProcessError> {
    let output: Output = serde_json::from_slice(output).map_err(|_| ProcessError::Malformed)?;
    let usable = output.version == 1
        && is_header_value(&output.access_key_id)
        && !output.secret_access_key.is_empty()
        && output.session_token.as_deref().is_none_or(is_header_value);
    if !usable {
        return Err(ProcessError::Malformed);
    }
    let expires = output
        .expiration
        .map(|text| text.parse().map_err(|_| ProcessError::Malformed))
        .transpose()?;
    Ok(CachedCredential {
        credential: Arc::new(AwsCredential {
            key_id: output.access_key_id,
            secret_key: output.secret_access_key,
            token: output.session_token,
        }),
        expires,
    })
}

/// Runs a command line and returns its output.
fn run(command: &str, timeout: Duration) -> Result<Vec<u8>, ProcessError> {
    let mut child = shell_command(command)
        // Programs prompt the user for a second factor here.
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|_| ProcessError::NotStarted)?;
    let (sender, receiver) = mpsc::channel();
    let stdout = child.stdout.take();
    // In a separate thread, because a read of a pipe has no timeout.
    std::thread::spawn(move || {
        let mut output = Vec::new();
        let read = stdout.map(|stdout| stdout.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut output));
        let _ = sender.send(matches!(read, Some(Ok(_))).then_some(output));
    });
    let outcome = match receiver.recv_timeout(timeout) {
        Err(_) => Err(ProcessError::TimedOut),
        Ok(None) => Err(ProcessError::Failed),
        Ok(Some(output)) if u64::try_from(output.len()).is_ok_and(|n| n > MAX_OUTPUT_BYTES) => {
            Err(ProcessError::TooMuch)
        }
        Ok(Some(output)) => {
            let mut polls = 0;
            loop {
                match child.try_wait() {
                    Ok(Some(status)) if status.success() => break Ok(output),
                    Ok(Some(_)) | Err(_) => break Err(ProcessError::Failed),
                    Ok(None) if polls >= EXIT_POLLS => break Err(ProcessError::TimedOut),
                    Ok(None) => {
                        polls += 1;
                        std::thread::sleep(EXIT_POLL);
                    }
                }
            }
        }
    };
    if outcome.is_err() {
        // Both calls fail harmlessly if the process has already ended. A program that the shell started keeps running
        // until it writes to the closed pipe, as it would with the AWS tools.
        let _ = child.kill();
        let _ = child.wait();
    }
    outcome
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::TokioRuntime;

    fn provider(command: &str) -> ProcessCredentials {
        ProcessCredentials::new("dev", command, TokioRuntime::shared())
    }

    async fn failure(command: &str) -> String {
        let error = provider(command)
            .get_credential()
            .await
            .unwrap_err()
            .to_string();
        assert!(!error.contains("SECRET"), "{error}");
        error
    }

    #[tokio::test]
    async fn credentials_are_kept_until_shortly_before_they_expire() {
        let directory = tempfile::tempdir().unwrap();
        let count = directory.path().join("count");
        let print = |expiration: &str| {
            format!(
                r#"echo x >> {}; echo '{{"Version":1,"AccessKeyId":"ID","SecretAccessKey":"SECRET","SessionToken":"T"{expiration}}}'"#,
                count.display()
            )
        };
        let runs = || std::fs::read_to_string(&count).unwrap().lines().count();

        let lasting = provider(&print(""));
        for _ in 0..3 {
            let credential = lasting.get_credential().await.unwrap();
            assert_eq!(credential.key_id, "ID");
            assert_eq!(credential.secret_key, "SECRET");
            assert_eq!(credential.token.as_deref(), Some("T"));
        }
        assert_eq!(runs(), 1);
        assert!(!format!("{lasting:?}").contains("SECRET"));

        let soon = TokioRuntime::shared().now().plus_millis(60_000);
        let expiring = provider(&print(&format!(r#","Expiration":"{soon}""#)));
        expiring.get_credential().await.unwrap();
        expiring.get_credential().await.unwrap();
        assert_eq!(
            runs(),
            3,
            "credentials that expire within five minutes are not reused"
        );
    }

    #[tokio::test]
    async fn every_failure_is_one_line_without_the_output() {
        let head = "Generic S3 error: the credential_process of AWS profile \"dev\" returned no credentials: ";
        for (command, cause) in [
            ("echo SECRET; exit 3", "it failed"),
            ("echo SECRET", "its output is not"),
            (
                r#"echo '{"Version":2,"AccessKeyId":"I","SecretAccessKey":"SECRET"}'"#,
                "its output is not",
            ),
            (
                r#"echo '{"Version":1,"AccessKeyId":"I","SecretAccessKey":"SECRET","SessionToken":"a\nb"}'"#,
                "its output is not",
            ),
            (
                r#"echo '{"Version":1,"AccessKeyId":"I","SecretAccessKey":"SECRET","Expiration":"2001-01-01T00:00:00Z"}'"#,
                "the credentials have expired",
            ),
            ("head -c 70000 /dev/zero", "it printed more than 64 KiB"),
        ] {
            let error = failure(command).await;
            assert!(error.starts_with(&format!("{head}{cause}")), "{error}");
        }
    }

    #[test]
    fn a_hanging_program_is_killed() {
        assert_eq!(
            run("exec sleep 600", Duration::from_millis(50)),
            Err(ProcessError::TimedOut)
        );
    }
}
