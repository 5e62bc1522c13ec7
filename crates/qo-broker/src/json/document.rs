//! The JSON object: its contents, and how it is written and read.
//!
//! ```json
//! {"format":1,"revision":42,"op_id":"…","written_at":"…","last_sequence":17,
//! "writers":{"3f2a…":{"writes":9,"at":"…"}},
//! "paused":["reports"],"pauses":{"queues":{"reports":{"since":"…","by":"…","reason":"…"}},"types":{}},
//! "settings":{"schedules/nightly":{"revision":3,…}},
//! "tasks":[
//! {"id":"…","task_type":"send_email","status":"pending",…},
//! {"id":"…","task_type":"send_email","status":"completed",…}
//! ]}
//! ```
//!
//! Each task is one line, in the stored form of all other modes. Lines of unchanged tasks are kept as bytes and copied, so a
//! write costs the encoding of the changes plus one copy. Fields that this version does not know are preserved.
//!
//! `paused` says which queues are paused. `pauses` adds who paused them, when and why, and the paused types. Versions that do not know
//! `pauses` change only `paused`, so that list decides on queues.
//!
//! `writers` records for each process how many of its writes the object contains. A process numbers its writes, and the
//! operation id of a write consists of the process's random number and the number of the write. So a process that lost a response
//! can find out with one read whether the object contains its write, however many other processes have written since. This takes
//! one entry per process, not one per write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use qo_core::limits::COUNT_MAX;
use qo_core::{OpId, Pauses, QueueName, TaskId, Timestamp};
use qo_store::StoreError;
use qo_store::client::Authorship;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The key of the object.
pub(super) const KEY: &str = "queue.json";
/// The newest format that this version reads.
const FORMAT: u32 = 1;
/// How long a process is remembered after its last write: far longer than the outcome of a write can stay unknown.
const WRITER_KEPT_MS: u64 = 10 * 60 * 1_000;
/// The most processes that are remembered.
const WRITERS_MAX: usize = 4_096;
/// The bits of an operation id that hold the number of the write.
const NUMBER_BITS: u64 = (1 << 62) - 1;

/// The writes of a process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct WriterMark {
    /// The number of its newest write.
    writes: u64,
    /// The time of that write.
    at: Timestamp,
}

/// Everything but the tasks.
#[derive(Debug, Clone, Default)]
pub(super) struct Head {
    pub(super) revision: u64,
    pub(super) last_sequence: u64,
    pub(super) writers: BTreeMap<String, WriterMark>,
    pub(super) pauses: Pauses,
    /// Documents by kind and name, as they are stored. Shared, because most writes change none.
    pub(super) settings: Arc<BTreeMap<String, Box<RawValue>>>,
    /// Fields of later versions.
    extra: BTreeMap<String, Box<RawValue>>,
}

/// Generates the operation ids of this process.
#[derive(Debug)]
pub(super) struct OpIdCounter {
    random: u64,
    writes: u64,
}

impl OpIdCounter {
    pub(super) fn new(random: u64) -> Self {
        Self { random, writes: 0 }
    }

    /// The operation id of the next write.
    pub(super) fn next_op(&mut self) -> OpId {
        self.writes += 1;
        OpId::from_random((u128::from(self.random) << 64) | u128::from(self.writes))
    }
}

/// The process and the write number in an operation id.
fn parts(op: &OpId) -> (String, u64) {
    let (writer, number) = op.as_uuid().as_u64_pair();
    (format!("{writer:016x}"), number & NUMBER_BITS)
}

impl Head {
    /// Records a write that is about to be made.
    pub(super) fn mark(&mut self, op: &OpId, now: Timestamp) {
        let (writer, writes) = parts(op);
        self.revision += 1;
        self.writers.insert(writer, WriterMark { writes, at: now });
        let kept_since = now.minus_millis(WRITER_KEPT_MS);
        self.writers.retain(|_, mark| mark.at >= kept_since);
        while self.writers.len() > WRITERS_MAX {
            let oldest = self.writers.iter().min_by_key(|(_, mark)| mark.at);
            let Some(oldest) = oldest.map(|(writer, _)| writer.clone()) else {
                break;
            };
            self.writers.remove(&oldest);
        }
    }
}

/// Whether the object in `body` contains the write `op`, and whether it is the latest one.
pub(super) fn recognise(body: &[u8], op: &OpId) -> Option<Authorship> {
    #[derive(Deserialize)]
    struct Marks {
        op_id: OpId,
        #[serde(default)]
        writers: BTreeMap<String, WriterMark>,
    }
    let marks: Marks = serde_json::from_slice(body).ok()?;
    if marks.op_id == *op {
        return Some(Authorship::Latest);
    }
    let (writer, number) = parts(op);
    let is_in = marks.writers.get(&writer)?.writes >= number;
    is_in.then_some(Authorship::BuiltUpon)
}

/// Writes the object into a buffer, which may be reused.
pub(super) fn write<'a>(
    mut body: BytesMut,
    head: &Head,
    op: &OpId,
    now: Timestamp,
    lines: impl Iterator<Item = &'a Bytes>,
    lines_bytes: usize,
) -> Result<Bytes, serde_json::Error> {
    let mut head_text = format!(
        "{{\"format\":{FORMAT},\"revision\":{},\"op_id\":\"{op}\",\"written_at\":\"{now}\",\"last_sequence\":{},\n\"writers\":{},\n\"paused\":{},\n{}",
        head.revision,
        head.last_sequence,
        serde_json::to_string(&head.writers)?,
        serde_json::to_string(&head.pauses.queues.keys().collect::<Vec<_>>())?,
        pauses_line(&head.pauses)?,
    );
    if !head.settings.is_empty() {
        head_text.push_str("\"settings\":{");
        let mut separator = "\n";
        for (name, value) in head.settings.iter() {
            head_text.push_str(separator);
            head_text.push_str(&serde_json::to_string(name)?);
            head_text.push(':');
            head_text.push_str(value.get());
            separator = ",\n";
        }
        head_text.push_str("},\n");
    }
    for (name, value) in &head.extra {
        head_text.push_str(&serde_json::to_string(name)?);
        head_text.push(':');
        head_text.push_str(value.get());
        head_text.push_str(",\n");
    }
    head_text.push_str("\"tasks\":[");
    body.clear();
    body.reserve(head_text.len() + lines_bytes + 64);
    body.put_slice(head_text.as_bytes());
    let mut separator: &[u8] = b"\n";
    for line in lines {
        body.put_slice(separator);
        body.put_slice(line);
        separator = b",\n";
    }
    body.put_slice(b"\n]}\n");
    Ok(body.freeze())
}

/// The pauses with their notes, if there are any.
fn pauses_line(pauses: &Pauses) -> Result<String, serde_json::Error> {
    if pauses.is_empty() {
        return Ok(String::new());
    }
    let pauses = serde_json::to_string(pauses)?;
    Ok(format!("\"pauses\":{pauses},\n"))
}

/// The pauses: the paused queues, and what is known beyond their names. Damaged notes must not stop the queue.
fn read_pauses(paused: BTreeSet<QueueName>, notes: Option<&str>) -> Pauses {
    let notes = notes.map(serde_json::from_str::<Pauses>).transpose();
    let mut notes = notes
        .inspect_err(
            |error| tracing::warn!(%error, "cannot read the paused types and the notes of pauses"),
        )
        .unwrap_or_default()
        .unwrap_or_default();
    let with_note = |queue: QueueName| {
        let pause = notes.queues.remove(&queue).unwrap_or_default();
        (queue, pause)
    };
    Pauses {
        queues: paused.into_iter().map(with_note).collect(),
        types: notes.types,
    }
}

/// The bytes that separate a line from the next.
pub(super) const LINE_OVERHEAD: usize = 2;

/// Reads the object: everything but the tasks, and each task's line.
pub(super) fn read(body: &[u8]) -> Result<(Head, Vec<&str>), StoreError> {
    let corrupt = |detail: String| StoreError::Corrupt {
        key: KEY.to_owned(),
        detail,
    };
    let parse = |error: serde_json::Error| corrupt(error.to_string());
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_slice(body).map_err(parse)?;
    let mut take = |name: &str| fields.remove(name).map(RawValue::get);
    let format: u32 = match take("format") {
        Some(text) => serde_json::from_str(text).map_err(parse)?,
        None => return Err(corrupt("the format version is missing".to_owned())),
    };
    if format > FORMAT {
        return Err(corrupt(format!(
            "its format version is {format}, but this version of qo reads only up to {FORMAT}: use a newer version of qo"
        )));
    }
    let mut head = Head::default();
    if let Some(text) = take("revision") {
        head.revision = serde_json::from_str(text).map_err(parse)?;
    }
    if let Some(text) = take("last_sequence") {
        head.last_sequence = serde_json::from_str(text).map_err(parse)?;
    }
    if head.revision.max(head.last_sequence) > COUNT_MAX {
        return Err(corrupt("a counter is out of range".to_owned()));
    }
    if let Some(text) = take("writers") {
        head.writers = serde_json::from_str(text).map_err(parse)?;
    }
    let paused: BTreeSet<QueueName> = match take("paused") {
        Some(text) => serde_json::from_str(text).map_err(parse)?,
        None => BTreeSet::new(),
    };
    head.pauses = read_pauses(paused, take("pauses"));
    if let Some(text) = take("settings") {
        head.settings = Arc::new(serde_json::from_str(text).map_err(parse)?);
    }
    let lines: Vec<&RawValue> = match take("tasks") {
        Some(text) => serde_json::from_str(text).map_err(parse)?,
        None => Vec::new(),
    };
    // Every write sets these.
    take("op_id");
    take("written_at");
    head.extra = fields
        .into_iter()
        .map(|(name, value)| (name, value.to_owned()))
        .collect();
    Ok((head, lines.into_iter().map(RawValue::get).collect()))
}

/// The id of the task in a line.
pub(super) fn id_of(line: &str) -> Option<TaskId> {
    #[derive(Deserialize)]
    struct TaskLine {
        id: TaskId,
    }
    // Every line that qo wrote begins like this. Other lines are parsed in full.
    if let Some(rest) = line.strip_prefix("{\"id\":\"")
        && let Some(Ok(id)) = rest.get(..36).map(str::parse)
    {
        return Some(id);
    }
    serde_json::from_str::<TaskLine>(line)
        .ok()
        .map(|line| line.id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use qo_core::{Actor, PauseNote, TaskType};

    use super::*;

    fn written(head: &Head, op: &OpId, lines: &[Bytes]) -> Bytes {
        let bytes = lines.iter().map(|line| line.len() + LINE_OVERHEAD).sum();
        let now = Timestamp::from_millis(5);
        write(BytesMut::new(), head, op, now, lines.iter(), bytes).unwrap()
    }

    #[test]
    fn a_written_object_can_be_read() {
        let mut head = Head {
            last_sequence: 7,
            ..Head::default()
        };
        let queue: QueueName = "a".parse().unwrap();
        let note = PauseNote {
            by: Actor::from_text("ada@laptop"),
            reason: Some("the provider is down".to_owned()),
        };
        let now = Timestamp::from_millis(5);
        head.pauses.set(&queue.into(), Some(note.clone()), now);
        let task_type: TaskType = "send".parse().unwrap();
        head.pauses.set(&task_type.into(), Some(note), now);
        let mut writer = OpIdCounter::new(0x1234);
        let op = writer.next_op();
        head.mark(&op, Timestamp::from_millis(5));
        let lines = [
            Bytes::from_static(br#"{"id":"550e8400-e29b-41d4-a716-446655440000","x":[1]}"#),
            Bytes::from_static(br#"{"x":1, "id":"650e8400-e29b-41d4-a716-446655440000"}"#),
        ];
        let body = written(&head, &op, &lines);
        let (again, found) = read(&body).unwrap();
        assert_eq!(found, lines);
        assert_eq!((again.revision, again.last_sequence), (1, 7));
        assert_eq!(again.pauses, head.pauses);
        assert_eq!(again.writers, head.writers);
        for (line, digit) in found.iter().zip(['5', '6']) {
            assert!(id_of(line).unwrap().to_string().starts_with(digit));
        }
        let empty = written(&head, &op, &[]);
        assert!(read(&empty).unwrap().1.is_empty());
    }

    #[test]
    fn the_list_of_paused_queues_decides_over_the_notes() {
        let read_pauses = |text: &str| {
            let body = format!("{{\"format\":1,\"tasks\":[],{text}}}");
            read(body.as_bytes()).unwrap().0.pauses
        };
        // A version that knows no notes has resumed `a` and paused `b`.
        let pauses = read_pauses(
            r#""paused":["b"],"pauses":{"queues":{"a":{"reason":"x"}},"types":{"t":{"reason":"y"}}}"#,
        );
        let names: Vec<_> = pauses.queues.keys().map(QueueName::as_str).collect();
        assert_eq!(names, ["b"]);
        assert_eq!(pauses.types.len(), 1);
        for damaged in ["[]", "7", r#"{"queues":{"a":3}}"#] {
            let pauses = read_pauses(&format!(r#""paused":["a"],"pauses":{damaged}"#));
            assert_eq!(pauses.queues.len(), 1, "{damaged}");
        }
    }

    #[test]
    fn fields_of_later_versions_survive() {
        let body = br#"{"format":1,"revision":3,"tasks":[],"later":{"a": [1, 2]},"Z":null}"#;
        let (head, _) = read(body).unwrap();
        let op = OpIdCounter::new(1).next_op();
        let body = written(&head, &op, &[]);
        let (again, _) = read(&body).unwrap();
        let texts: Vec<_> = again.extra.iter().map(|(n, v)| (&**n, v.get())).collect();
        assert_eq!(texts, [("Z", "null"), ("later", r#"{"a": [1, 2]}"#)]);
    }

    #[test]
    fn a_newer_format_is_rejected_with_advice() {
        let error = read(br#"{"format":2,"tasks":[]}"#).unwrap_err();
        assert!(error.to_string().contains("newer version"), "{error}");
        assert!(read(br#"{"tasks":[]}"#).is_err());
    }

    #[test]
    fn a_write_is_recognised_after_many_later_writes() {
        let (mut ours, mut theirs) = (OpIdCounter::new(77), OpIdCounter::new(78));
        let mut head = Head::default();
        let now = Timestamp::from_millis(1_000);
        let first = ours.next_op();
        head.mark(&first, now);
        assert_eq!(
            recognise(&written(&head, &first, &[]), &first),
            Some(Authorship::Latest)
        );
        for _ in 0..100 {
            let op = theirs.next_op();
            head.mark(&op, now);
            let body = written(&head, &op, &[]);
            assert_eq!(recognise(&body, &first), Some(Authorship::BuiltUpon));
            assert_eq!(recognise(&body, &op), Some(Authorship::Latest));
        }
        let body = written(&head, &theirs.next_op(), &[]);
        let lost = ours.next_op();
        assert_eq!(recognise(&body, &lost), None, "it was never written");
        head.mark(&theirs.next_op(), now.plus_millis(WRITER_KEPT_MS + 1));
        assert_eq!(head.writers.len(), 1, "an idle writer is forgotten");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_rejected(body in proptest::collection::vec(any::<u8>(), 0..256)) {
            let op = OpIdCounter::new(1).next_op();
            prop_assert_eq!(recognise(&body, &op), None);
            prop_assert!(read(&body).is_err());
        }
    }
}
