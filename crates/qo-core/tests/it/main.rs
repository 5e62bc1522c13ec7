//! The tests of qo-core that look at it from outside, in one binary.

mod codec;
mod model;
mod queue_state;
mod state_machine_doc;
mod support;
mod transitions;
