//! What reached the store: the number of requests, and every version of every task.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use qo_check::StoredVersion;
use qo_core::{TaskId, Timestamp};
use serde_json::value::RawValue;

/// The versions of tasks, by their ids, oldest first.
pub type Versions = BTreeMap<TaskId, Vec<StoredVersion>>;

/// What reached the store.
#[derive(Debug, Default)]
pub struct Observed {
    /// Requests, by method.
    pub requests: BTreeMap<String, u64>,
    /// In direct mode, the records of tasks in the order of their arrival.
    records: BTreeMap<TaskId, Vec<(u64, StoredVersion)>>,
    documents: Vec<Document>,
    lines: HashMap<Box<str>, usize>,
    texts: Vec<Bytes>,
    /// Writes that the server may have applied, although it answered with an error or not at all: a busy server does that on its own.
    in_doubt: Vec<(String, Bytes, Timestamp)>,
}

/// One state of the JSON object.
#[derive(Debug)]
struct Document {
    revision: u64,
    at: Timestamp,
    /// The index of each line among all texts.
    lines: Vec<usize>,
}

impl Observed {
    /// Records an applied write.
    pub(super) fn applied(&mut self, key: &str, body: &[u8], at: Timestamp) {
        if let Some(id) = task_in(key) {
            let revision = number_in(body, "revision").unwrap_or(0);
            let written = StoredVersion {
                at,
                tick: 0,
                body: Some(Bytes::copy_from_slice(body)),
                damaged: false,
            };
            self.records
                .entry(id)
                .or_default()
                .push((revision, written));
        } else if key == "queue.json" {
            self.document(body, at);
        }
    }

    /// Records a write that may have been applied.
    pub(super) fn in_doubt(&mut self, key: &str, body: &[u8], at: Timestamp) {
        let body = Bytes::copy_from_slice(body);
        self.in_doubt.push((key.to_owned(), body, at));
    }

    /// Takes a write in doubt for applied if a later revision was written and nobody else has written this one. Of several such writes of one
    /// revision, only one can have been applied: the one that the next revision was made from. So the latest revisions are settled first.
    fn settle(&mut self) {
        let mut in_doubt: BTreeMap<(String, u64), Vec<(Bytes, Timestamp)>> = BTreeMap::new();
        for (key, body, at) in std::mem::take(&mut self.in_doubt) {
            if let Some(revision) = number_in(&body, "revision") {
                let writes = in_doubt.entry((key, revision)).or_default();
                writes.push((body, at));
            }
        }
        for ((key, revision), writes) in in_doubt.into_iter().rev() {
            let revisions: Vec<u64> = if let Some(id) = task_in(&key) {
                let records = self.records.get(&id).into_iter().flatten();
                records.map(|(revision, _)| *revision).collect()
            } else {
                let documents = self.documents.iter();
                documents.map(|document| document.revision).collect()
            };
            let is_built_upon = revisions.iter().any(|known| *known > revision);
            if !is_built_upon || revisions.contains(&revision) {
                continue;
            }
            let applied =
                (writes.into_iter().rev()).max_by_key(|(body, _)| self.lines_kept(body, revision));
            if let Some((body, at)) = applied {
                self.applied(&key, &body, at);
            }
        }
    }

    /// How many lines of a state of the JSON object are also in the next one that is known. A write changes few of them.
    fn lines_kept(&self, body: &[u8], revision: u64) -> usize {
        let later = self.documents.iter().filter(|one| one.revision > revision);
        let Some(next) = later.min_by_key(|one| one.revision) else {
            return 0;
        };
        let indexes = tasks_in(body)
            .into_iter()
            .filter_map(|task| self.lines.get(task.get()));
        indexes.filter(|index| next.lines.contains(index)).count()
    }

    fn document(&mut self, body: &[u8], at: Timestamp) {
        if serde_json::from_slice::<BTreeMap<&str, &RawValue>>(body).is_err() {
            return;
        }
        let tasks = tasks_in(body);
        let mut lines = Vec::with_capacity(tasks.len());
        for task in tasks {
            let index = if let Some(index) = self.lines.get(task.get()) {
                *index
            } else {
                self.texts
                    .push(Bytes::copy_from_slice(task.get().as_bytes()));
                let index = self.texts.len() - 1;
                self.lines.insert(task.get().into(), index);
                index
            };
            lines.push(index);
        }
        let revision = number_in(body, "revision").unwrap_or(0);
        self.documents.push(Document {
            revision,
            at,
            lines,
        });
    }

    /// The number of observed states of the JSON object.
    pub fn documents(&self) -> usize {
        self.documents.len()
    }

    /// Every version of every task, and the errors in their order. Responses may overtake each other in the proxy, so the versions are ordered by
    /// revision, and each revision must exist once.
    pub fn versions(&mut self) -> (Versions, Vec<String>) {
        self.settle();
        let mut errors = Vec::new();
        let mut versions = Versions::new();
        for (id, records) in &self.records {
            let mut records = records.clone();
            records.sort_by_key(|(revision, _)| *revision);
            let written = records.into_iter().map(|(_, written)| written).collect();
            versions.insert(*id, written);
        }
        let mut documents: Vec<&Document> = self.documents.iter().collect();
        documents.sort_by_key(|document| document.revision);
        let mut last: BTreeMap<TaskId, usize> = BTreeMap::new();
        let mut revision = None;
        for document in documents {
            if revision.is_some_and(|before| before + 1 != document.revision) {
                errors.push(format!(
                    "queue.json went from revision {revision:?} to {}",
                    document.revision
                ));
            }
            revision = Some(document.revision);
            let mut gone = std::mem::take(&mut last);
            for index in &document.lines {
                let text = &self.texts[*index];
                let Some(id) = id_in(text) else {
                    errors.push("a line of queue.json is not a task".to_owned());
                    continue;
                };
                if gone.remove(&id) != Some(*index) {
                    versions.entry(id).or_default().push(StoredVersion {
                        at: document.at,
                        tick: 0,
                        body: Some(text.clone()),
                        damaged: false,
                    });
                }
                last.insert(id, *index);
            }
            for id in gone.into_keys() {
                errors.push(format!(
                    "task {id} is missing in queue.json from revision {} on",
                    document.revision
                ));
            }
        }
        (versions, errors)
    }
}

/// The lines of a state of the JSON object.
fn tasks_in(body: &[u8]) -> Vec<&RawValue> {
    let fields = serde_json::from_slice::<BTreeMap<&str, &RawValue>>(body).unwrap_or_default();
    let tasks = fields.get("tasks").map_or("[]", |tasks| tasks.get());
    serde_json::from_str(tasks).unwrap_or_default()
}

/// The task whose record is under this key.
fn task_in(key: &str) -> Option<TaskId> {
    match key.parse() {
        Ok(qo_core::keys::Key::Task(id)) => Some(id),
        _ => None,
    }
}

fn number_in(body: &[u8], field: &str) -> Option<u64> {
    let fields: BTreeMap<&str, &RawValue> = serde_json::from_slice(body).ok()?;
    serde_json::from_str(fields.get(field)?.get()).ok()
}

fn id_in(text: &[u8]) -> Option<TaskId> {
    let fields: BTreeMap<&str, &RawValue> = serde_json::from_slice(text).ok()?;
    serde_json::from_str(fields.get("id")?.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "550e8400-e29b-41d4-a716-446655440000";

    #[test]
    fn versions_are_ordered_by_revision() {
        let mut observed = Observed::default();
        for revision in [2, 1] {
            let body = format!(r#"{{"id":"{ID}","revision":{revision}}}"#);
            observed.applied(
                &format!("tasks/5/{ID}.json"),
                body.as_bytes(),
                Timestamp::MIN,
            );
        }
        let (versions, errors) = observed.versions();
        assert!(errors.is_empty());
        let bodies: Vec<_> = versions[&ID.parse().unwrap()]
            .iter()
            .map(|written| number_in(written.body.as_ref().unwrap(), "revision"))
            .collect();
        assert_eq!(bodies, [Some(1), Some(2)]);
    }

    #[test]
    fn of_two_writes_in_doubt_the_one_that_was_built_upon_is_taken() {
        let line = |byte: u8, revision: u64| {
            let id = TaskId::from_bytes([byte; 16]);
            format!(r#"{{"id":"{id}","revision":{revision}}}"#)
        };
        let state = |revision: u64, one: u64, two: u64| {
            let tasks = format!("{},{}", line(1, one), line(2, two));
            format!(r#"{{"revision":{revision},"tasks":[{tasks}]}}"#)
        };
        let lost = state(2, 2, 1);
        let applied = state(2, 1, 2);
        for in_doubt in [[&lost, &applied], [&applied, &lost]] {
            let mut observed = Observed::default();
            let key = "queue.json";
            observed.applied(key, state(1, 1, 1).as_bytes(), Timestamp::MIN);
            for body in in_doubt {
                observed.in_doubt(key, body.as_bytes(), Timestamp::MIN);
            }
            observed.applied(key, state(3, 1, 3).as_bytes(), Timestamp::MIN);
            let (versions, errors) = observed.versions();
            assert!(errors.is_empty(), "{errors:?}");
            let counts: Vec<usize> = versions.values().map(Vec::len).collect();
            assert_eq!(counts, [1, 3]);
        }
    }

    #[test]
    fn a_removed_task_and_a_fork_are_reported() {
        let mut observed = Observed::default();
        let line = format!(r#"{{"id":"{ID}","revision":1}}"#);
        for (revision, tasks) in [(1, line.as_str()), (2, line.as_str()), (3, ""), (3, "")] {
            let body = format!(r#"{{"revision":{revision},"tasks":[{tasks}]}}"#);
            observed.applied("queue.json", body.as_bytes(), Timestamp::MIN);
        }
        let (versions, errors) = observed.versions();
        assert_eq!(versions[&ID.parse().unwrap()].len(), 1, "it changed once");
        assert_eq!(errors.len(), 2, "{errors:?}");
    }

    #[test]
    fn a_write_in_doubt_counts_if_others_built_upon_it() {
        let mut observed = Observed::default();
        let document = |revision| format!(r#"{{"revision":{revision},"tasks":[]}}"#);
        for revision in [1, 2, 4] {
            observed.applied("queue.json", document(revision).as_bytes(), Timestamp::MIN);
        }
        for revision in [2, 3, 5] {
            observed.in_doubt("queue.json", document(revision).as_bytes(), Timestamp::MIN);
        }
        assert_eq!(observed.versions().1, [""; 0]);
        assert_eq!(observed.documents(), 4);
    }
}
