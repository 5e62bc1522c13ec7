//! What the tests stand on: a world with virtual time, and a bucket in memory that lives in it.

pub(crate) mod bucket;
pub(crate) mod clocked;
pub(crate) mod world;

pub(crate) use bucket::Bucket;
pub(crate) use world::TestWorld;
