//! Compiled programs in memory and on disk.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use qo_wasi::{
    Address, CompileError, GetError, Input, Programs, Sandbox, SandboxConfig, SandboxError,
};

use crate::programs::{exits, hello};
use crate::support::{binary, run, sandbox};

fn address(number: usize) -> Address {
    let mut address = [0; 32];
    address[..8].copy_from_slice(&number.to_be_bytes());
    address
}

async fn load(bytes: Vec<u8>) -> Result<Bytes, Infallible> {
    // Gives other requests for the same program time to arrive.
    tokio::task::yield_now().await;
    Ok(Bytes::from(bytes))
}

#[tokio::test]
async fn concurrent_requests_share_one_compilation() {
    let programs = Programs::new(sandbox());
    let bytes = binary(&hello());
    let requests = (0..20).map(|_| programs.get(address(1), load(bytes.clone())));
    assert!(join_all(requests).await.iter().all(Result::is_ok));
    assert_eq!(programs.compilations(), 1);
}

#[tokio::test]
async fn the_least_recently_used_program_is_dropped() {
    let programs = Programs::new(sandbox());
    let bytes = binary(r#"(module (func (export "_start")))"#);
    for number in 0..64 {
        programs
            .get(address(number), load(bytes.clone()))
            .await
            .unwrap();
    }
    // The first one is used again, so the second one is the oldest.
    programs.get(address(0), load(bytes.clone())).await.unwrap();
    programs
        .get(address(64), load(bytes.clone()))
        .await
        .unwrap();
    assert_eq!(programs.compilations(), 65);
    programs.get(address(0), load(bytes.clone())).await.unwrap();
    assert_eq!(programs.compilations(), 65);
    programs.get(address(1), load(bytes.clone())).await.unwrap();
    assert_eq!(programs.compilations(), 66);
}

#[tokio::test]
async fn failures_are_not_remembered() {
    let programs = Programs::new(sandbox());
    let missing = async { Err::<Bytes, &str>("missing") };
    let failed = programs.get(address(1), missing).await;
    assert_eq!(failed.unwrap_err(), GetError::Load("missing"));
    let bad = programs.get(address(1), load(b"no".to_vec())).await;
    assert!(matches!(bad, Err(GetError::Compile(CompileError::Bad(_)))));
    assert!(
        programs
            .get(address(1), load(binary(&hello())))
            .await
            .is_ok()
    );
}

fn cached(path: &Path) -> Result<Arc<Sandbox>, SandboxError> {
    let mut config = SandboxConfig::default();
    config.cache = Some(path.to_owned());
    Sandbox::new(config).map(Arc::new)
}

/// The files with machine code.
fn code_files(path: &Path) -> Vec<PathBuf> {
    let children = |path: PathBuf| {
        fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    let versions = children(path.join("code/modules"));
    versions
        .flat_map(children)
        .filter(|path| path.extension().is_none())
        .collect()
}

#[tokio::test]
async fn compiled_programs_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache");
    for restarts in 0..2 {
        let sandbox = cached(&path).unwrap();
        assert_eq!(run(&sandbox, &exits(7), Input::empty()).await.code(), 7);
        assert_eq!(sandbox.disk_cache_hits(), restarts);
        assert_eq!(code_files(&path).len(), 1);
    }
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

/// Machine code that was changed is never run, whether or not it would still be readable.
#[tokio::test]
async fn a_changed_file_is_compiled_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache");
    let first = cached(&path).unwrap();
    run(&first, &exits(7), Input::empty()).await;
    let [file] = code_files(&path)[..].to_vec().try_into().unwrap();
    let original = fs::read(&file).unwrap();
    let mut flipped = original.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for bad in [
        flipped,
        original[..middle].to_vec(),
        Vec::new(),
        b"junk".to_vec(),
    ] {
        fs::write(&file, bad).unwrap();
        let sandbox = cached(&path).unwrap();
        assert_eq!(run(&sandbox, &exits(7), Input::empty()).await.code(), 7);
        assert_eq!(sandbox.disk_cache_hits(), 0);
    }
    // The file of another program under this name, which decompresses well.
    let other = cached(&directory.path().join("other")).unwrap();
    run(&other, &exits(8), Input::empty()).await;
    fs::copy(&code_files(&directory.path().join("other"))[0], &file).unwrap();
    let sandbox = cached(&path).unwrap();
    assert_eq!(run(&sandbox, &exits(7), Input::empty()).await.code(), 7);
    assert_eq!(sandbox.disk_cache_hits(), 0);

    // Without its checksum, a good file is not used either.
    fs::remove_dir_all(path.join("sums")).unwrap();
    let sandbox = cached(&path).unwrap();
    assert_eq!(run(&sandbox, &exits(7), Input::empty()).await.code(), 7);
    assert_eq!(sandbox.disk_cache_hits(), 0);
    let sandbox = cached(&path).unwrap();
    assert_eq!(run(&sandbox, &exits(7), Input::empty()).await.code(), 7);
    assert_eq!(sandbox.disk_cache_hits(), 1);
}

#[tokio::test]
async fn a_directory_that_others_can_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache");
    fs::create_dir(&path).unwrap();
    for mode in [0o755, 0o770, 0o702] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let refused = cached(&path).unwrap_err().to_string();
        assert!(refused.contains("chmod 700"), "{refused}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    assert!(cached(&path).is_ok());
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(cached(&file).is_err());
}
