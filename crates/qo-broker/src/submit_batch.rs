//! Decides how the tasks of one call are sent to the commit loop.
//!
//! Most go together, many in one message, and are looked up together if their ids were chosen: clients over HTTP choose all of them. A submit
//! with an idempotency key or with a stored input may wait for others, or for a cleanup. It is sent alone, so that the others do not wait for it. Tasks with one ordering key must arrive in the order of the call: if one of them is sent alone, they have a message of their own.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::Payload;
use qo_core::task::OrderingLine;
use qo_engine::EngineError;
use qo_engine::api::Submitted;

use super::message::Submit;

/// A submit and its index in the call.
type Indexed = (usize, Submit);

/// The tasks of one call.
#[derive(Debug, Default)]
pub(super) struct SubmitBatch {
    /// The results that are known already.
    pub(super) results: BTreeMap<usize, Result<Submitted, EngineError>>,
    /// Sent together, in order.
    pub(super) plain: Vec<Indexed>,
    /// Sent apart from the others: one task, or the tasks of one line.
    pub(super) alone: Vec<Vec<Indexed>>,
    /// Whether some of the plain tasks have an ordering key.
    pub(super) has_order: bool,
}

impl SubmitBatch {
    /// Adds a task whose input is stored, or the error.
    pub(super) fn add(&mut self, index: usize, placed: Result<Submit, EngineError>) {
        match placed {
            Err(error) => {
                self.results.insert(index, Err(error));
            }
            Ok(submit) if goes_alone(&submit) => self.alone.push(vec![(index, submit)]),
            Ok(submit) => {
                self.has_order |= submit.request.ordering.is_some();
                self.plain.push((index, submit));
            }
        }
    }

    /// Gives all tasks of a line a message of their own if one of them goes alone.
    pub(super) fn separate_mixed_lines(&mut self) {
        let alone = self.alone.iter().flatten();
        let mixed: BTreeSet<OrderingLine> = alone.filter_map(line_of).collect();
        if mixed.is_empty() {
            return;
        }
        let mut lines: BTreeMap<OrderingLine, Vec<Indexed>> = BTreeMap::new();
        let mut rest = Vec::new();
        let alone = std::mem::take(&mut self.alone).into_iter().flatten();
        for one in alone.chain(std::mem::take(&mut self.plain)) {
            match line_of(&one).filter(|line| mixed.contains(line)) {
                Some(line) => lines.entry(line).or_default().push(one),
                None if goes_alone(&one.1) => self.alone.push(vec![one]),
                None => rest.push(one),
            }
        }
        self.plain = rest;
        for (_, mut line) in lines {
            line.sort_unstable_by_key(|(index, _)| *index);
            self.alone.push(line);
        }
    }
}

fn line_of((_, submit): &Indexed) -> Option<OrderingLine> {
    submit.request.ordering_line()
}

fn goes_alone(submit: &Submit) -> bool {
    submit.request.idempotency.is_some() || matches!(submit.input, Payload::Stored(_))
}

#[cfg(test)]
mod tests {
    use qo_core::task::IdempotencyScope;
    use qo_core::{IdempotencyKey, Json, TaskId, TaskType};
    use qo_engine::api::{IdempotencyRequest, SubmitRequest};

    use super::*;

    fn submit(byte: u8, key: Option<&str>) -> Submit {
        let mut request = SubmitRequest::new(TaskType::new("t").unwrap(), Json::null());
        request.idempotency = key.map(|key| IdempotencyRequest {
            key: IdempotencyKey::new(key).unwrap(),
            scope: IdempotencyScope::default(),
            window_ms: None,
        });
        Submit {
            id: TaskId::from_bytes([byte; 16]),
            id_is_chosen: true,
            unreadable: None,
            request,
            input: Payload::Inline(Json::null()),
            is_exempt: false,
            _input_guard: None,
        }
    }

    #[test]
    fn tasks_with_chosen_ids_go_together_and_those_with_keys_alone() {
        let mut batch = SubmitBatch::default();
        for (index, key) in [(0, None), (1, Some("k")), (2, None)] {
            batch.add(usize::from(index), Ok(submit(index, key)));
        }
        batch.separate_mixed_lines();
        let indexes = |part: &[Indexed]| part.iter().map(|(index, _)| *index).collect::<Vec<_>>();
        assert_eq!(indexes(&batch.plain), [0, 2]);
        let alone: Vec<_> = batch.alone.iter().map(|part| indexes(part)).collect();
        assert_eq!(alone, [[1]]);
    }
}
