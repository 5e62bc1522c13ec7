//! Types for programs that implement an [`Engine`](crate::Engine) or watch one.

#[doc(inline)]
pub use qo_engine::api::Completion;
#[doc(inline)]
pub use qo_engine::watch::Watcher;
