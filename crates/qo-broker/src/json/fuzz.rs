//! Fuzz target of the JSON object.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use qo_core::task::decode;
use qo_core::{QueueState, Timestamp};
use qo_store::client::{Authorship, ClientConfig};
use qo_store::runtime::TokioRuntime;
use qo_store::{OpenOptions, StoreClient, open};

use super::document;
use super::{JsonConfig, JsonJournal};

/// An object that can be read survives loading, writing, recognising and reading without losing anything.
pub fn json_document(bytes: &[u8]) {
    let Ok((_, lines)) = document::read(bytes) else {
        return;
    };
    for line in &lines {
        if let Ok(task) = decode(line.as_bytes()) {
            assert_eq!(document::id_of(line), Some(task.id));
        }
    }
    let runtime = TokioRuntime::shared();
    let Ok(store) = open("memory:", &OpenOptions::new(Arc::clone(&runtime))) else {
        return;
    };
    let client = StoreClient::new(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        Arc::clone(&runtime),
        ClientConfig::default(),
    );
    let mut journal = JsonJournal::new(client, runtime, JsonConfig::default());
    let mut state = QueueState::new();
    if journal.load_body(bytes, &mut state).is_err() {
        return;
    }
    let tasks: Vec<_> = state.tasks().cloned().collect();
    let op = journal.op_ids.next_op();
    let now = Timestamp::from_millis(1_763_238_840_123);
    let revision = journal.head.revision;
    let mut head = journal.head.clone();
    head.mark(&op, now);
    assert_ne!(head.revision, revision, "two states with the same bytes");
    let written = journal
        .compose(&head, &BTreeMap::new(), &op, now)
        .unwrap_or_default();
    assert_eq!(document::recognise(&written, &op), Some(Authorship::Latest));
    // The new object holds the same tasks for a process that has read the old one and for one that has read nothing.
    let unknown_lines = journal.unknown_lines.clone();
    let known = journal.lines.clone();
    assert!(journal.load_body(&written, &mut state).is_ok());
    assert_eq!(
        (&journal.unknown_lines, &journal.lines),
        (&unknown_lines, &known)
    );
    assert!(state.tasks().eq(&tasks));
    assert_eq!(
        document::read(&written).map(|(_, lines)| lines.len()).ok(),
        Some(unknown_lines.len() + known.len())
    );
}
