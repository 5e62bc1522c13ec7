//! Random command sequences against a simple reference model, and the promises of the design.
//!
//! The model is a list of tasks that every question scans. It shares no code with the state machine beyond the names of the
//! statuses. After each command the outcome, every task and the promises are compared:
//!
//! 1. a submit that was acknowledged is never lost;
//! 2. one task per task id and per idempotency key;
//! 3. at any time at most one attempt is current, and only it can change the outcome;
//! 4. a terminal task changes only by a replay, an archive or an unarchive;
//! 5. when faults stop, every task reaches its end;
//! 6. attempts exceed one only where a failure, an expired lease, a release, a snooze or a replay explains it.

mod reference;
mod run;

use proptest::prelude::*;

use self::run::Run;

/// One command in a form that shrinks well: what to do, two choices, and how much time has passed.
type Step = (u8, u8, u8, u16);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any::<Step>(), 100)
}

fn check(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut run = Run::new();
    for step in steps {
        run.step(*step).map_err(TestCaseError::fail)?;
    }
    run.drain().map_err(TestCaseError::fail)
}

/// Two halves of the 20,000 sequences, so that both cores have work.
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
