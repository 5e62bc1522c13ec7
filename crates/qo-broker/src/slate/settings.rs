//! SlateDB's settings.
//!
//! The polling intervals decide how many store requests an idle database sends. They are long: this process is the only writer and
//! the only compactor, so a poll finds only the process's own changes. The cost is that compaction starts up to one interval late,
//! which is acceptable because many small tables may wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions,
};
use slatedb::db_cache::SplitCache;
use slatedb::{BlockCachePolicy, CacheTarget, Settings};

use super::cache::FifoCache;
use super::config::SlateConfig;

/// The largest table, well below the largest object that SQLite stores.
const TABLE_BYTES: usize = 32 * 1024 * 1024;
/// How many tables may wait for compaction: several times as many as a full load writes between two polls.
const TABLES_WAITING_MAX: usize = 256;
/// The most data in memory that is not yet in a table.
const UNFLUSHED_BYTES_MAX: usize = 128 * 1024 * 1024;
/// The size and the number of concurrent reads of each of the up to sixteen tables that are merged. All of this is in memory in
/// addition to the tasks.
const MERGE_READ_BYTES: usize = 1024 * 1024;
const MERGE_READS_IN_FLIGHT: usize = 2;
/// The cache of the indexes and filters of all tables.
const META_CACHE_BYTES: usize = 96 * 1024 * 1024;
/// The cache of data blocks.
const BLOCK_CACHE_BYTES: usize = 16 * 1024 * 1024;
/// The minimum age of unused files before they are deleted.
const GARBAGE_AGE: Duration = Duration::from_mins(10);

pub(super) fn settings(config: &SlateConfig) -> Settings {
    let garbage = Some(GarbageCollectorDirectoryOptions {
        interval: Some(config.garbage_interval),
        min_age: GARBAGE_AGE,
        ..GarbageCollectorDirectoryOptions::default()
    });
    Settings {
        flush_interval: Some(config.flush_interval),
        manifest_poll_interval: config.poll_interval,
        l0_sst_size_bytes: TABLE_BYTES,
        l0_max_ssts: TABLES_WAITING_MAX,
        l0_max_ssts_per_key: TABLES_WAITING_MAX,
        max_unflushed_bytes: UNFLUSHED_BYTES_MAX,
        compactor_options: Some(CompactorOptions {
            poll_interval: config.poll_interval,
            max_concurrent_compactions: 1,
            // Merging many tables at once rewrites each byte less often.
            scheduler_options: HashMap::from([
                ("min_compaction_sources".to_owned(), "8".to_owned()),
                ("max_compaction_sources".to_owned(), "16".to_owned()),
            ]),
            worker: Some(CompactionWorkerOptions {
                max_concurrent_compactions: 1,
                compactions_poll_interval: config.poll_interval,
                max_sst_size: TABLE_BYTES,
                bytes_to_fetch: MERGE_READ_BYTES,
                max_fetch_tasks: MERGE_READS_IN_FLIGHT,
                max_subcompactions: 1,
                ..CompactionWorkerOptions::default()
            }),
            ..CompactorOptions::default()
        }),
        garbage_collector_options: Some(GarbageCollectorOptions {
            manifest_options: garbage,
            wal_options: garbage,
            compacted_options: garbage,
            compactions_options: garbage,
            ..GarbageCollectorOptions::default()
        }),
        ..Settings::default()
    }
}

/// New data is rarely read, so only the indexes and filters of new tables are cached.
pub(super) fn cache_policy() -> BlockCachePolicy {
    let targets = [CacheTarget::Index, CacheTarget::Filters];
    BlockCachePolicy::default().with_flush_targets(&targets)
}

pub(super) fn cache() -> Arc<SplitCache> {
    Arc::new(
        SplitCache::new()
            .with_meta_cache(Some(Arc::new(FifoCache::new(META_CACHE_BYTES))))
            .with_block_cache(Some(Arc::new(FifoCache::new(BLOCK_CACHE_BYTES))))
            .build(),
    )
}
