//! The log index of a claim as a fencing token.

use qo_core::Task;

use crate::cluster::{TestCluster, claim};

async fn claim_one(cluster: &TestCluster) -> Task {
    let tasks = cluster.on_leader(|engine| async move { engine.claim(&claim(1)).await });
    tasks.await.pop().unwrap()
}

fn index_of(task: &Task) -> u64 {
    task.log_index.unwrap().get()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_carries_the_index_of_its_entry_and_it_grows_across_leaders() {
    let mut cluster = TestCluster::start(3, |_| {}).await;
    for number in 0..3 {
        cluster.submit(number).await;
    }
    let first = claim_one(&cluster).await;
    let second = claim_one(&cluster).await;
    assert!(index_of(&second) > index_of(&first));
    // It is the index that `qo cluster log` shows for the claim.
    let leader = cluster.leader().await;
    let lines = leader.log(0, Some(index_of(&second)), 1).await.unwrap();
    let granted: Vec<_> = lines
        .iter()
        .flat_map(|line| &line.commands)
        .filter(|command| command.name == "CLAIM")
        .collect();
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0].task, Some(second.id));
    // The record is in that entry, so only the response to the claim knows the index.
    let stored = leader.engine().get(second.id).await.unwrap();
    assert_eq!(stored.log_index, None);
    let renewed = leader
        .engine()
        .renew(second.id, second.lease_id.unwrap(), None)
        .await
        .unwrap();
    assert_eq!(renewed.log_index, None);

    cluster.kill(leader.id());
    let third = claim_one(&cluster).await;
    assert!(index_of(&third) > index_of(&second));
    // A task that is claimed again has a higher one, too.
    let lease = third.lease_id.unwrap();
    let released = cluster
        .on_leader(|engine| async move { engine.release(third.id, lease).await })
        .await;
    assert_eq!(released.log_index, None);
    let again = claim_one(&cluster).await;
    assert_eq!(again.id, third.id);
    assert!(index_of(&again) > index_of(&third));
}
