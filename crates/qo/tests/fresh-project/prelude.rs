//! What the samples in README.md and docs/guides/ leave out. `fresh-project.sh` appends a function for each sample, and compiles all of them.

#![allow(unused)]

use std::time::Duration;

use qo::{Context, KeyHold, TaskError, TaskInput, Worker};
use serde_json::json;

mod mail {
    pub async fn send(_to: &str, _id: qo::TaskId) -> std::io::Result<()> {
        Ok(())
    }
}

mod database {
    pub async fn insert_all<'a>(
        _rows: impl Iterator<Item = &'a super::Row>,
    ) -> std::io::Result<Vec<u64>> {
        Ok(Vec::new())
    }
}

struct Smtp;

impl Smtp {
    fn new() -> Self {
        Self
    }

    async fn send(&self, _to: &str, _id: qo::TaskId, _attempt: u32) -> std::io::Result<()> {
        Ok(())
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Row {
    id: u64,
}

impl TaskInput for Row {
    const TYPE: &'static str = "row";
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Email {
    to: String,
}

impl TaskInput for Email {
    const TYPE: &'static str = "send_email";
}

async fn send(_email: Email, _context: Context) -> Result<String, TaskError> {
    Ok("sent".into())
}

#[derive(serde::Serialize)]
struct Change {
    account: u64,
}

/// The variables that samples use.
struct Given {
    queue: qo::Queue,
    email: Email,
    change: Change,
    order: u64,
    file: String,
    bytes: bytes::Bytes,
}
