//! The stored form of a WASI job.
//!
//! A job is an ordinary task of the type [`TASK_TYPE`]. Its input names the program and the program's standard input by address, its
//! output names what the program wrote to its standard output. The names of the fields are those of queuey-queue, whose routes the HTTP
//! API offers.
//!
//! | part of the task | content |
//! | --- | --- |
//! | input | [`JobInput`] |
//! | output of a completed task | [`JobOutput`] |
//! | error of a failed attempt | [`JobFailure`] |

use std::fmt;

use qo_core::{BlobAddress, Json};
use serde::{Deserialize, Serialize};

/// The task type of jobs.
pub const TASK_TYPE: &str = "wasi";

/// The default number of attempts of a job.
pub const ATTEMPTS_DEFAULT: u32 = 3;

/// The most arguments of a program.
pub const ARGS_MAX: usize = 1_000;

/// The input of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInput {
    /// The program: a WASI module or component.
    pub binary_addr: BlobAddress,
    /// The program's standard input; empty if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_addr: Option<BlobAddress>,
    /// The program's arguments after its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

impl JobInput {
    /// A job that runs this program without input.
    pub fn new(binary_addr: BlobAddress) -> Self {
        Self {
            binary_addr,
            input_addr: None,
            args: Vec::new(),
        }
    }

    /// The blobs that the job refers to.
    pub fn blobs(&self) -> impl Iterator<Item = BlobAddress> {
        [Some(self.binary_addr), self.input_addr]
            .into_iter()
            .flatten()
    }

    /// Reads the input of a task.
    pub fn parse(json: &Json) -> Result<Self, InvalidJob> {
        let input: Self = serde_json::from_str(json.as_str()).map_err(|error| InvalidJob {
            detail: error.to_string(),
        })?;
        if input.args.len() > ARGS_MAX {
            return Err(InvalidJob {
                detail: format!("it has more than {ARGS_MAX} arguments"),
            });
        }
        Ok(input)
    }

    /// The input as JSON.
    pub fn to_json(&self) -> Result<Json, InvalidJob> {
        to_json(self)
    }
}

/// The output of a completed job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobOutput {
    /// What the program wrote to its standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_addr: Option<BlobAddress>,
    /// The program's exit code, if the runner reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

impl JobOutput {
    /// Reads the output of a task.
    pub fn parse(json: &Json) -> Result<Self, InvalidJob> {
        serde_json::from_str(json.as_str()).map_err(|error| InvalidJob {
            detail: error.to_string(),
        })
    }

    /// The output as JSON.
    pub fn to_json(&self) -> Result<Json, InvalidJob> {
        to_json(self)
    }
}

fn to_json(value: &impl Serialize) -> Result<Json, InvalidJob> {
    let invalid = |detail: String| InvalidJob { detail };
    let text = serde_json::to_string(value).map_err(|error| invalid(error.to_string()))?;
    Json::parse(text).map_err(|error| invalid(error.to_string()))
}

/// Why a payload is not that of a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a WASI job: {detail}")]
pub struct InvalidJob {
    detail: String,
}

/// The error of a failed attempt.
///
/// As text, the first line has the exit code and the address of the output, if there are any, and the rest is the message:
///
/// ```text
/// exit code 3; output 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
/// thread 'main' panicked at src/main.rs:4
/// ```
///
/// The facts come first, because a task keeps only the first 4 KiB of an error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFailure {
    /// The program's exit code.
    pub exit_code: Option<i32>,
    /// What the program wrote to its standard output before it failed.
    pub output_addr: Option<BlobAddress>,
    /// What went wrong.
    pub message: String,
}

impl JobFailure {
    /// Reads the error of a task. A text without the first line is the message.
    pub fn parse(text: &str) -> Self {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        let mut failure = Self {
            message: rest.to_owned(),
            ..Self::default()
        };
        for fact in first.split("; ") {
            if let Some(Ok(code)) = fact.strip_prefix("exit code ").map(str::parse) {
                failure.exit_code = Some(code);
            } else if let Some(Ok(address)) = fact.strip_prefix("output ").map(str::parse) {
                failure.output_addr = Some(address);
            } else {
                return Self {
                    message: text.to_owned(),
                    ..Self::default()
                };
            }
        }
        failure
    }
}

impl fmt::Display for JobFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.exit_code.map(|code| format!("exit code {code}"));
        let output = self.output_addr.map(|address| format!("output {address}"));
        let facts: Vec<_> = [code, output].into_iter().flatten().collect();
        if facts.is_empty() {
            return f.write_str(&self.message);
        }
        f.write_str(&facts.join("; "))?;
        if !self.message.is_empty() {
            write!(f, "\n{}", self.message)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::address_of;

    #[test]
    fn payloads_have_the_documented_form() {
        let (a, b) = (address_of(b"a"), address_of(b"b"));
        let mut input = JobInput::new(a);
        assert_eq!(
            input.to_json().unwrap().as_str(),
            format!(r#"{{"binary_addr":"{a}"}}"#)
        );
        input.input_addr = Some(b);
        let json = input.to_json().unwrap();
        assert_eq!(
            json.as_str(),
            format!(r#"{{"binary_addr":"{a}","input_addr":"{b}"}}"#)
        );
        assert_eq!(JobInput::parse(&json), Ok(input.clone()));
        assert_eq!(input.blobs().collect::<Vec<_>>(), [a, b]);
        let output = JobOutput {
            output_addr: Some(a),
            exit_code: Some(0),
        };
        let json = output.to_json().unwrap();
        assert_eq!(
            json.as_str(),
            format!(r#"{{"output_addr":"{a}","exit_code":0}}"#)
        );
        assert_eq!(JobOutput::parse(&json), Ok(output));
        for bad in [
            "{}",
            "[]",
            "null",
            r#"{"binary_addr":"59ae214373240a255f453cc2fa8d26ab60d6b532"}"#,
        ] {
            assert!(JobInput::parse(&Json::parse(bad.to_owned()).unwrap()).is_err());
        }
    }

    #[test]
    fn failures_round_trip_and_other_texts_are_messages() {
        let output_addr = Some(address_of(b"a"));
        for failure in [
            JobFailure {
                exit_code: Some(3),
                output_addr,
                message: "a\nb".to_owned(),
            },
            JobFailure {
                exit_code: Some(-1),
                output_addr: None,
                message: String::new(),
            },
            JobFailure {
                exit_code: None,
                output_addr,
                message: "x".to_owned(),
            },
            JobFailure {
                exit_code: None,
                output_addr: None,
                message: "the lease expired".to_owned(),
            },
        ] {
            assert_eq!(JobFailure::parse(&failure.to_string()), failure);
        }
        assert_eq!(
            JobFailure::parse("exit code x; output y").message,
            "exit code x; output y"
        );
        assert_eq!(JobFailure::parse("").message, "");
    }
}
