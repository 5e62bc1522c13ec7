//! Random command sequences against a simple reference model, and the promises.
//!
//! The model is a list of tasks that every query scans. It shares no code with the state machine except the status
//! names. After each command, the outcome, every task and these promises are checked:
//!
//! 1. an acknowledged submit is never lost;
//! 2. there is one task per task id and per idempotency key;
//! 3. at most one attempt is current at any time, and only it can change the result;
//! 4. a finished task changes only by a replay, an archive or an unarchive, and a failed one that stops its ordering key by a cancel;
//! 5. when faults stop, every task finishes;
//! 6. a task has more than one attempt only after a failure, an expired lease, a release, a snooze or a replay;
//! 7. of the tasks with one ordering key, one runs at a time, in the order in which they joined the line;
//! 8. a queue never accepts more waiting tasks than its settings allow, and no task is claimed that has waited longer;
//! 9. under each limit, no more tasks run or start than it allows, and every task that has room runs;
//! 10. groups take turns: the oldest task of a group that has turns left in the round is served;
//! 11. a task holds its key as long as it says, and a submit that finds the key held changes a task that has not started as it asks for.

mod reference;
mod run;

use proptest::prelude::*;

use self::run::ModelRun;

/// A command in a form that shrinks well: the kind, two choices, and the elapsed time.
type Step = (u8, u8, u8, u16);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any::<Step>(), 100)
}

fn check(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut run = ModelRun::new();
    for step in steps {
        run.step(*step).map_err(TestCaseError::fail)?;
    }
    run.drain().map_err(TestCaseError::fail)
}

/// Two halves of the 20,000 sequences, so that two cores can share the work.
mod sequences {
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn first_half(steps in steps()) {
            check(&steps)?;
        }

        #[test]
        fn second_half(steps in steps()) {
            check(&steps)?;
        }
    }
}
