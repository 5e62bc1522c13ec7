//! Recognising one's own write in what is stored.
//!
//! Every record that qo writes under a condition names the operation that wrote it: `op_id` for the newest write, and for
//! the ones before it `op_id` in each of its `events`, or the list `recent_ops`. After an answer was lost, the stored record
//! therefore still tells whether the write was applied, even when somebody has since built upon it.
//!
//! Only these three fields are looked at, each on its own, so that a record which is odd elsewhere is still recognised. The
//! bytes come from outside: whatever does not parse is simply not ours. Nothing is copied, the work is linear in the
//! body's length, and the client bounds that length before it reads a body.

use qo_core::OpId;
use serde::Deserialize;
use serde_json::value::RawValue;

/// What a stored record says about an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorship {
    /// The operation wrote what is stored now.
    Latest,
    /// The operation wrote an earlier state, and what is stored now was made from that.
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

/// Whether the JSON record in `body` carries the operation `op`, and how. Bytes that are no such record carry none.
pub fn carries_operation(body: &[u8], op: &OpId) -> Option<Authorship> {
    let record: Record<'_> = serde_json::from_slice(body).ok()?;
    if names(record.op_id, op) {
        return Some(Authorship::Latest);
    }
    let in_events = elements(record.events).into_iter().any(|event| {
        serde_json::from_str::<Event<'_>>(event.get()).is_ok_and(|event| names(event.op_id, op))
    });
    let built_upon = in_events
        || elements(record.recent_ops)
            .into_iter()
            .any(|recent| names(Some(recent), op));
    built_upon.then_some(Authorship::BuiltUpon)
}

fn elements(list: Option<&RawValue>) -> Vec<&RawValue> {
    list.and_then(|list| serde_json::from_str(list.get()).ok())
        .unwrap_or_default()
}

fn names(value: Option<&RawValue>, op: &OpId) -> bool {
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
    fn an_operation_that_wrote_twice_counts_by_its_newest_write() {
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
    fn hostile_bytes_carry_nothing() {
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
        fn no_bytes_make_it_fail(body in proptest::collection::vec(any::<u8>(), 0..256)) {
            prop_assert_eq!(carries_operation(&body, &op(1)), None);
        }
    }
}
