//! Recognising the client's own write in a stored record.
//!
//! Every record that qo writes conditionally contains the id of the operation that wrote it: `op_id` for the newest
//! write, and for earlier writes the `op_id` of each of its `events`, or the list `recent_ops`. If a response was
//! lost, the stored record still shows whether the write was applied, even if another writer has changed the record
//! since.
//!
//! Only these three fields are parsed, each on its own, so a record that is unusual elsewhere is still recognised.
//! The bytes are untrusted: anything that does not parse is not ours. Nothing is copied, the work is linear in the
//! body's length, and the client bounds that length before it reads a body.

use qo_core::OpId;
use serde::Deserialize;
use serde_json::value::RawValue;

/// How a stored record refers to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorship {
    /// The operation wrote the current state.
    Latest,
    /// The operation wrote an earlier state from which the current one was derived.
    BuiltUpon,
}

#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow, default)]
    op_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    events: Option<&'a RawValue>,
    #[serde(borrow, default)]
    recent_ops: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    op_id: Option<&'a RawValue>,
}

/// Whether the JSON record in `body` contains the operation `op`, and how. Other bytes contain no operation.
pub fn carries_operation(body: &[u8], op: &OpId) -> Option<Authorship> {
    let record: Record<'_> = serde_json::from_slice(body).ok()?;
    if is_op(record.op_id, op) {
        return Some(Authorship::Latest);
    }
    let in_events = elements(record.events).into_iter().any(|event| {
        serde_json::from_str::<Event<'_>>(event.get()).is_ok_and(|event| is_op(event.op_id, op))
    });
    let built_upon = in_events
        || elements(record.recent_ops)
            .into_iter()
            .any(|recent| is_op(Some(recent), op));
    built_upon.then_some(Authorship::BuiltUpon)
}

fn elements(list: Option<&RawValue>) -> Vec<&RawValue> {
    list.and_then(|list| serde_json::from_str(list.get()).ok())
        .unwrap_or_default()
}

fn is_op(value: Option<&RawValue>, op: &OpId) -> bool {
    value
        .and_then(|value| serde_json::from_str::<OpId>(value.get()).ok())
        .is_some_and(|found| found == *op)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn op(number: u128) -> OpId {
        OpId::from_random(number)
    }

    #[test]
    fn the_newest_write_is_recognised_by_the_records_own_operation() {
        let body = format!(r#"{{"x":[1,{{}}],"op_id":"{}","events":7}}"#, op(1));
        assert_eq!(
            carries_operation(body.as_bytes(), &op(1)),
            Some(Authorship::Latest)
        );
        assert_eq!(carries_operation(body.as_bytes(), &op(2)), None);
    }

    #[test]
    fn an_older_write_is_recognised_in_the_history() {
        let events = format!(
            r#"{{"op_id":"{}","events":[null,{{"op_id":3}},{{"at":"x","op_id":"{}"}}]}}"#,
            op(1),
            op(2)
        );
        let recent = format!(
            r#"{{"op_id":"{}","recent_ops":[{{}},"no id","{}"]}}"#,
            op(1),
            op(2)
        );
        for body in [events, recent] {
            assert_eq!(
                carries_operation(body.as_bytes(), &op(2)),
                Some(Authorship::BuiltUpon),
                "{body}"
            );
            assert_eq!(carries_operation(body.as_bytes(), &op(3)), None);
        }
    }

    #[test]
    fn an_operation_that_wrote_twice_is_the_latest() {
        let body = format!(
            r#"{{"op_id":"{0}","events":[{{"op_id":"{0}"}}],"recent_ops":["{0}"]}}"#,
            op(1)
        );
        assert_eq!(
            carries_operation(body.as_bytes(), &op(1)),
            Some(Authorship::Latest)
        );
    }

    #[test]
    fn hostile_bytes_contain_no_operation() {
        let deep = "[".repeat(100_000);
        let twice = format!(r#"{{"op_id":"{0}","op_id":"{0}"}}"#, op(1));
        for body in [
            "",
            "null",
            "[]",
            "{",
            "\u{0}",
            r#"{"op_id":null,"events":{},"recent_ops":1}"#,
            &deep,
            &format!(r#"{{"events":{deep}"#),
            &twice,
        ] {
            assert_eq!(carries_operation(body.as_bytes(), &op(1)), None);
        }
        assert_eq!(carries_operation(&[0xff; 64], &op(1)), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(body in proptest::collection::vec(any::<u8>(), 0..256)) {
            prop_assert_eq!(carries_operation(&body, &op(1)), None);
        }
    }
}
