//! How SlateDB is set up.
//!
//! What it asks of the store while nothing happens is decided by its polling intervals. They are long: this process is the only
//! writer and the only compactor, so that a poll finds what the process did itself. The price is that compaction starts up to
//! one interval late, which many small tables can wait for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions,
};
use slatedb::db_cache::SplitCache;
use slatedb::{BlockCachePolicy, CacheTarget, Settings};

use super::cache::Cache;
use super::config::SlateConfig;

/// The largest table, well below the largest object that SQLite keeps.
const TABLE_BYTES: usize = 32 * 1024 * 1024;
/// How many tables may wait for compaction: as many as a full load writes between two polls, several times over.
const TABLES_WAITING_MAX: usize = 256;
/// How much may be in memory and not yet in a table.
const UNFLUSHED_BYTES_MAX: usize = 128 * 1024 * 1024;
/// How much of each of the up to sixteen tables that are merged is read at once, and how many such reads are under way: all of it
/// is in memory beside the tasks.
const MERGE_READ_BYTES: usize = 1024 * 1024;
const MERGE_READS_AT_ONCE: usize = 2;
/// For the indexes and filters of all tables.
const META_CACHE_BYTES: usize = 96 * 1024 * 1024;
/// For what is read.
const BLOCK_CACHE_BYTES: usize = 16 * 1024 * 1024;
/// How old what nobody needs must be before it is deleted.
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
                max_fetch_tasks: MERGE_READS_AT_ONCE,
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

/// What was just written is rarely read, so that only the indexes and filters of new tables are kept.
pub(super) fn cache_policy() -> BlockCachePolicy {
    let targets = [CacheTarget::Index, CacheTarget::Filters];
    BlockCachePolicy::default().with_flush_targets(&targets)
}

pub(super) fn cache() -> Arc<SplitCache> {
    Arc::new(
        SplitCache::new()
            .with_meta_cache(Some(Arc::new(Cache::new(META_CACHE_BYTES))))
            .with_block_cache(Some(Arc::new(Cache::new(BLOCK_CACHE_BYTES))))
            .build(),
    )
}
