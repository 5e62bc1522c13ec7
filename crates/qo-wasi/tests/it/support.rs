//! Compiles and runs a program.

use std::sync::Arc;
use std::time::Duration;

use qo_wasi::{
    BadProgram, CompileError, Ended, Exit, Input, Limits, RunError, Sandbox, SandboxConfig,
};

/// No program of these tests needs as long as this, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(2);

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ended: Ended,
    pub(crate) output: Vec<u8>,
    /// Whether the output ended as that of a complete run.
    pub(crate) is_complete: bool,
}

impl Outcome {
    pub(crate) fn code(&self) -> i32 {
        let Ok(Exit { code }) = self.ended.result else {
            panic!("{:?}", self.ended);
        };
        code
    }

    pub(crate) fn error(&self) -> RunError {
        assert!(
            !self.is_complete,
            "the output of a failed run is incomplete"
        );
        self.ended.result.clone().unwrap_err()
    }
}

pub(crate) fn sandbox() -> Arc<Sandbox> {
    sandbox_with(Limits::default())
}

pub(crate) fn sandbox_with(limits: Limits) -> Arc<Sandbox> {
    let mut config = SandboxConfig::default();
    config.limits = limits;
    Arc::new(Sandbox::new(config).unwrap())
}

/// Compiles a program from its text.
pub(crate) fn binary(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a program from its text.
pub(crate) async fn run(sandbox: &Arc<Sandbox>, text: &str, input: Input) -> Outcome {
    let program = sandbox.compile(&binary(text)).unwrap();
    let arguments = vec!["program".to_owned()];
    let mut run = sandbox.run(program, arguments, input);
    let reading = async {
        let mut output = Vec::new();
        loop {
            match run.output.next().await {
                Some(Ok(bytes)) => output.extend_from_slice(&bytes),
                Some(Err(_)) => return (output, false),
                None => return (output, true),
            }
        }
    };
    let both = async { tokio::join!(run.ended, reading) };
    let (ended, (output, is_complete)) = tokio::time::timeout(LONG, both).await.unwrap();
    Outcome {
        ended,
        output,
        is_complete,
    }
}

/// Compiles a binary that is no program.
pub(crate) fn refusal(bytes: &[u8]) -> BadProgram {
    match sandbox().compile(bytes) {
        Err(CompileError::Bad(bad)) => bad,
        other => panic!("{other:?}"),
    }
}
