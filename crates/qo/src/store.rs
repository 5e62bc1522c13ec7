//! The object store below a queue.
//!
//! [`Connect::open_store`](crate::Connect::open_store) opens a store without a queue, and [`Queue::store`](crate::Queue::store)
//! returns the store of a queue in direct mode.

#[doc(inline)]
pub use qo_store::client::ClientConfig;
#[doc(inline)]
pub use qo_store::{CredentialSource, Store, StoreClient, StoreKind, StoreSource};
