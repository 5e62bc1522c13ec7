//! Compiled programs on disk: wasmtime's cache, in a directory that is private and checked.
//!
//! A compiled program is machine code that wasmtime runs without further checks. So nobody else may write to the directory, and a
//! file that was damaged, for instance by a power failure, must not be used:
//!
//! - The directory must belong to this user and deny access to all others. Everything in it was then written by this user.
//! - `code/` has the files of wasmtime, and `sums/` has the SHA-256 of each. Before a program is compiled, files that are new or changed since
//!   the last time are compared with it. A file without a checksum, or with another one, is deleted, and wasmtime compiles again.
//!
//! | a crash after | leaves |
//! | --- | --- |
//! | wasmtime wrote a file | a file without a checksum; the next compilation deletes it |
//! | the checksum was written in part | a checksum that does not match; the same |
//! | the file was deleted, not its checksum | a checksum without a file; the next check deletes it |
//!
//! The number and the size of the files are bounded. wasmtime deletes those that were not used for longest, but only once an hour. So the
//! oldest files go after each compilation that leaves more.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use ring::digest::{SHA256, digest};
use wasmtime::{Cache, CacheConfig};

/// Maximum number of files, and of their bytes.
const FILES_MAX: usize = 1_000;
const TOTAL_MAX_BYTES: u64 = 512 << 20;

/// The cache directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskCacheError {
    /// It cannot be created or read.
    #[error("cannot use the cache directory {}: {source}", path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could put machine code into it.
    #[error("the cache directory {} {why}; `chmod 700` it, or choose another one", path.display())]
    NotPrivate {
        /// The directory.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// wasmtime refuses it.
    #[error("cannot use the cache directory: {0}")]
    Refused(String),
}

/// The cache.
#[derive(Debug)]
pub(crate) struct DiskCache {
    cache: Cache,
    modules: PathBuf,
    sums: PathBuf,
    /// Files that were compared with their checksum, as they were then.
    checked: Mutex<BTreeMap<String, Stamp>>,
}

/// A file at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl DiskCache {
    /// Opens the cache, and creates its directory if there is none.
    pub(crate) fn open(path: &Path) -> Result<Self, DiskCacheError> {
        let unusable = |source| DiskCacheError::Unusable {
            path: path.to_owned(),
            source,
        };
        let path = &std::path::absolute(path).map_err(unusable)?;
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(path).map_err(unusable)?;
        check_private(path)?;
        // wasmtime deletes what it does not know in its own directory.
        let (code, sums) = (path.join("code"), path.join("sums"));
        builder.create(&code).map_err(unusable)?;
        builder.create(&sums).map_err(unusable)?;
        let mut config = CacheConfig::new();
        config
            .with_directory(&code)
            .with_file_count_soft_limit(FILES_MAX as u64)
            .with_files_total_size_soft_limit(TOTAL_MAX_BYTES)
            // Compressing files again would change their checksums.
            .with_optimized_compression_usage_counter_threshold(u64::MAX);
        let cache = Cache::new(config);
        Ok(Self {
            cache: cache.map_err(|error| DiskCacheError::Refused(format!("{error:#}")))?,
            modules: code.join("modules"),
            sums,
            checked: Mutex::default(),
        })
    }

    /// The cache for wasmtime's engine.
    pub(crate) fn cache(&self) -> Cache {
        self.cache.clone()
    }

    /// How often a compiled program was found.
    pub(crate) fn hits(&self) -> usize {
        self.cache.cache_hits()
    }

    /// Checks the files, compiles, and notes the checksums of new files. Compilations must not overlap.
    ///
    /// Fails without compiling if a bad file cannot be deleted, because wasmtime would use it.
    pub(crate) fn around<T>(&self, compile: impl FnOnce() -> T) -> io::Result<T> {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        self.check(&mut checked)?;
        let compiled = compile();
        self.note(&mut checked);
        self.delete_oldest(FILES_MAX, TOTAL_MAX_BYTES);
        Ok(compiled)
    }

    /// Deletes the files that were written first until the others are within these bounds. The next check deletes their checksums.
    fn delete_oldest(&self, files_max: usize, total_max_bytes: u64) {
        let mut files: Vec<_> = self.files().into_values().collect();
        files.sort_by_key(|(_, stamp)| stamp.modified);
        let mut count = files.len();
        let mut total_bytes: u64 = files.iter().map(|(_, stamp)| stamp.bytes).sum();
        for (path, stamp) in files {
            if count <= files_max && total_bytes <= total_max_bytes {
                return;
            }
            if let Err(error) = remove(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot delete a cached program");
            }
            count -= 1;
            total_bytes -= stamp.bytes;
        }
    }

    /// Deletes the files that are not as they were written.
    fn check(&self, checked: &mut BTreeMap<String, Stamp>) -> io::Result<()> {
        let files = self.files();
        for (name, (path, stamp)) in &files {
            if checked.get(name) == Some(stamp) {
                continue;
            }
            let expected = fs::read(self.sums.join(name)).ok();
            if expected.is_some() && sum(path).map(String::into_bytes) == expected {
                checked.insert(name.clone(), *stamp);
                continue;
            }
            tracing::debug!(
                name,
                "a cached program has no valid checksum; compiling it again"
            );
            checked.remove(name);
            remove(path)?;
        }
        checked.retain(|name, _| files.contains_key(name));
        for entry in entries(&self.sums) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !files.contains_key(&name) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Notes the checksums of new files.
    fn note(&self, checked: &mut BTreeMap<String, Stamp>) {
        for (name, (path, stamp)) in self.files() {
            if checked.get(&name) == Some(&stamp) {
                continue;
            }
            let noted = sum(&path).map(|sum| fs::write(self.sums.join(&name), sum));
            if let Some(Ok(())) = noted {
                checked.insert(name, stamp);
            } else {
                tracing::warn!(name, "cannot note the checksum of a cached program");
            }
        }
    }

    /// The files with compiled programs. Their names are hashes, and contain no dot, unlike those of other files of wasmtime.
    fn files(&self) -> BTreeMap<String, (PathBuf, Stamp)> {
        let mut files = BTreeMap::new();
        for version in entries(&self.modules) {
            for entry in entries(&version.path()) {
                let Ok(metadata) = entry.metadata() else {
                    continue;
                };
                let file = entry.file_name().to_string_lossy().into_owned();
                if !metadata.is_file() || file.contains('.') {
                    continue;
                }
                let version = version.file_name().to_string_lossy().into_owned();
                let stamp = Stamp {
                    inode: metadata.ino(),
                    bytes: metadata.len(),
                    modified: metadata.modified().ok(),
                };
                files.insert(format!("{version}-{file}"), (entry.path(), stamp));
            }
        }
        files
    }
}

/// Refuses a directory that others can use.
fn check_private(path: &Path) -> Result<(), DiskCacheError> {
    let metadata = fs::metadata(path).map_err(|source| DiskCacheError::Unusable {
        path: path.to_owned(),
        source,
    })?;
    let why = if metadata.uid() != rustix::process::geteuid().as_raw() {
        "belongs to another user"
    } else if metadata.mode() & 0o077 != 0 {
        "can be used by other users"
    } else {
        return Ok(());
    };
    Err(DiskCacheError::NotPrivate {
        path: path.to_owned(),
        why,
    })
}

/// The entries of a directory; none if it does not exist.
fn entries(path: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(path).into_iter().flatten().flatten()
}

/// The SHA-256 of a file, in hexadecimal digits.
fn sum(path: &Path) -> Option<String> {
    use std::fmt::Write as _;
    let bytes = fs::read(path).ok()?;
    let mut text = String::new();
    for byte in digest(&SHA256, &bytes).as_ref() {
        write!(text, "{byte:02x}").ok()?;
    }
    Some(text)
}

/// Deletes a file that may be gone already.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_files_are_deleted_beyond_the_bounds() {
        let directory = tempfile::tempdir().unwrap();
        let cache = DiskCache::open(&directory.path().join("cache")).unwrap();
        let version = cache.modules.join("version");
        let names = || {
            let names = cache.files().into_keys();
            names.collect::<Vec<_>>().join(" ")
        };
        fs::create_dir_all(&version).unwrap();
        // The order of the names is not that of the times.
        for (name, age) in [("a", 1), ("b", 4), ("c", 2), ("d", 3)] {
            let path = version.join(name);
            fs::write(&path, [0; 100]).unwrap();
            let file = fs::File::options().write(true).open(path).unwrap();
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(100 - age);
            file.set_modified(modified).unwrap();
        }
        cache.delete_oldest(4, 400);
        assert_eq!(names(), "version-a version-b version-c version-d");
        cache.delete_oldest(3, 400);
        assert_eq!(names(), "version-a version-c version-d");
        cache.delete_oldest(3, 299);
        assert_eq!(names(), "version-a version-c");
        cache.delete_oldest(3, 0);
        assert_eq!(names(), "");
    }
}
