//! Panics of the code under test. A library may catch the panic of one of its tasks and continue without it, so a run records them all.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Forgets the panics of this thread, and records those from now on.
pub(crate) fn record() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let earlier = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
            earlier(panic);
        }));
    });
    PANICS.take();
}

/// The panics of this thread since [`record`].
pub(crate) fn recorded() -> Vec<String> {
    PANICS.take()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_caught_panic_is_recorded() {
        super::record();
        let caught = std::panic::catch_unwind(|| assert_eq!(1, 2, "planted"));
        assert!(caught.is_err());
        let recorded = super::recorded();
        assert_eq!(recorded.len(), 1);
        assert!(recorded[0].contains("planted"), "{recorded:?}");
        assert!(super::recorded().is_empty());
    }
}
