//! The switch of the planted bugs, as `crates/qo-core/src/mutant.rs` of the copy that contains them.

use std::cell::RefCell;

thread_local! {
    static PLANTED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Whether this bug is switched on for the current thread.
pub fn planted(mutant: &str) -> bool {
    PLANTED.with_borrow(|planted| planted.as_deref() == Some(mutant))
}

/// Switches one bug on for the current thread, and all others off.
pub fn plant(mutant: Option<&str>) {
    PLANTED.set(mutant.map(str::to_owned));
}
