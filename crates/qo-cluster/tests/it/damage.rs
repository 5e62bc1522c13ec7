//! Damaged logs.

use std::path::PathBuf;

use crate::cluster::{TestCluster, drain, request};

fn log_files(cluster: &TestCluster) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(cluster.data(1).join("log"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

async fn one_node_with_tasks(count: u64) -> TestCluster {
    let cluster = TestCluster::start(1, |config| config.segment_bytes = 2 * 1024).await;
    for number in 0..count {
        cluster
            .on_leader(|engine| async move { engine.submit(request(number)).await })
            .await;
    }
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_end_is_cut_off() {
    let mut cluster = one_node_with_tasks(10).await;
    cluster.kill(1);
    let last = log_files(&cluster).pop().unwrap();
    let mut content = std::fs::read(&last).unwrap();
    // A frame that was begun and never synced.
    content.extend_from_slice(b"qoL1\0\0\x10\0 and so on");
    std::fs::write(&last, &content).unwrap();
    cluster.restart(1).await.unwrap();
    assert_eq!(drain(&cluster).await, 10);
    cluster.kill(1);
    cluster.restart(1).await.unwrap();
    assert_eq!(drain(&cluster).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_before_acknowledged_entries_is_refused_with_advice() {
    let mut cluster = one_node_with_tasks(40).await;
    cluster.kill(1);
    let files = log_files(&cluster);
    assert!(files.len() > 2, "there are several files");
    for (file, position) in [(&files[0], 100), (&files[files.len() - 1], 20)] {
        let whole = std::fs::read(file).unwrap();
        let mut damaged = whole.clone();
        damaged[position] ^= 1;
        std::fs::write(file, &damaged).unwrap();
        let refused = cluster.restart(1).await.unwrap_err().to_string();
        assert!(refused.contains("damaged"), "{refused}");
        assert!(refused.contains("replace the node"), "{refused}");
        std::fs::write(file, &whole).unwrap();
    }
    // A missing file is noticed too.
    let missing = std::fs::read(&files[1]).unwrap();
    std::fs::remove_file(&files[1]).unwrap();
    let refused = cluster.restart(1).await.unwrap_err().to_string();
    assert!(refused.contains("missing"), "{refused}");
    std::fs::write(&files[1], &missing).unwrap();
    cluster.restart(1).await.unwrap();
    assert_eq!(drain(&cluster).await, 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_only_begun_leaves_no_gap() {
    let mut cluster = one_node_with_tasks(10).await;
    cluster.kill(1);
    let last = log_files(&cluster).pop().unwrap();
    let name = last.file_name().unwrap().to_string_lossy().into_owned();
    let number: u64 = name.split('-').next().unwrap().parse().unwrap();
    let begun = format!("{:010}-00000007.log", number + 1);
    std::fs::write(last.with_file_name(begun), b"").unwrap();
    cluster.restart(1).await.unwrap();
    for number in 100..140 {
        cluster
            .on_leader(|engine| async move { engine.submit(request(number)).await })
            .await;
    }
    cluster.kill(1);
    cluster.restart(1).await.unwrap();
    assert_eq!(drain(&cluster).await, 50);
}
