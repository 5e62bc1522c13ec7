//! The identity of a data directory.
//!
//! `node.json` names the cluster and the node. It is written before anything else, and a node refuses a directory of another one: two nodes
//! with one vote could elect two leaders. A lock on the file excludes a second process.
//!
//! It also has the number of groups, which decides where a task is found: a node refuses to start with another number.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::ClusterConfig;
use crate::error::ClusterError;
use crate::log::sync_directory;

const NAME: &str = "node.json";
/// The newest format of the data directory that this version reads.
const FORMAT: u32 = 2;
/// The format of a directory with one group, which earlier versions read, too.
const FORMAT_ONE_GROUP: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Identity {
    format: u32,
    cluster: String,
    node: u64,
    #[serde(default = "one_group")]
    groups: u16,
}

fn one_group() -> u16 {
    1
}

/// Holds the data directory until it is dropped.
#[derive(Debug)]
pub(crate) struct DataLock {
    _file: File,
}

/// Checks that the directory belongs to this node, or makes it so if it is new. Blocks.
pub(crate) fn take(config: &ClusterConfig) -> Result<DataLock, ClusterError> {
    let refused = |reason: String| ClusterError::DataDirectory {
        path: config.data.display().to_string(),
        reason,
    };
    std::fs::create_dir_all(&config.data).map_err(|error| refused(error.to_string()))?;
    let path = config.data.join(NAME);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| refused(error.to_string()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(refused(
                "another process uses it; stop that one first".to_owned(),
            ));
        }
        Err(TryLockError::Error(error)) => return Err(refused(error.to_string())),
    }
    let mut text = String::new();
    file.read_to_string(&mut text)
        .map_err(|error| refused(error.to_string()))?;
    if text.is_empty() {
        if has_data(&config.data) {
            return Err(refused(format!(
                "it has a log but no {NAME}; restore that file, or use an empty directory"
            )));
        }
        write(&mut file, config).map_err(|error| refused(error.to_string()))?;
        sync_directory(&config.data)?;
        return Ok(DataLock { _file: file });
    }
    let identity: Identity = serde_json::from_str(&text)
        .map_err(|error| refused(format!("{NAME} cannot be read: {error}")))?;
    if identity.format > FORMAT {
        return Err(refused(format!(
            "its format is {}, but this version of qo reads only {FORMAT}: use a newer version of qo",
            identity.format
        )));
    }
    if identity.cluster != config.cluster {
        return Err(refused(format!(
            "it belongs to the cluster {:?}, not to {:?}; use another directory for this cluster",
            identity.cluster, config.cluster
        )));
    }
    if identity.node != config.node {
        return Err(refused(format!(
            "it belongs to node {}, not to node {}; a node never takes over the data of another one",
            identity.node, config.node
        )));
    }
    if identity.groups != config.groups {
        return Err(refused(format!(
            "its tasks are divided over {} groups, not {}, and the number cannot change; start this node with --groups {}. To use another number, begin a new cluster",
            identity.groups, config.groups, identity.groups
        )));
    }
    Ok(DataLock { _file: file })
}

fn has_data(directory: &Path) -> bool {
    directory.join("log").exists() || group_directory(directory, 0, 2).exists()
}

/// The directory of a group's log and rows. The only group of a node is in the data directory itself.
pub(crate) fn group_directory(data: &Path, group: u16, groups: u16) -> PathBuf {
    if groups == 1 {
        data.to_owned()
    } else {
        data.join(format!("group-{group}"))
    }
}

fn write(file: &mut File, config: &ClusterConfig) -> std::io::Result<()> {
    let identity = Identity {
        format: if config.groups == 1 {
            FORMAT_ONE_GROUP
        } else {
            FORMAT
        },
        cluster: config.cluster.clone(),
        node: config.node,
        groups: config.groups,
    };
    let text = serde_json::to_vec_pretty(&identity)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&text)?;
    file.sync_all()
}
