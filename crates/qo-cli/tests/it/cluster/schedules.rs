//! Schedules of a cluster: the leader fires them, and the next one goes on where it stopped.

use std::time::Duration;

use futures_util::TryStreamExt;
use qo::schedule::{ScheduleSpec, TaskTemplate};
use qo::{Queue, Task, TaskFilter, Timestamp};
use qo_store::runtime::TokioRuntime;

use super::LIMIT;
use super::nodes::Cluster;

const NAME: &str = "often";
/// More than the ticks of this test.
const TICKS_MAX: usize = 10_000;

/// The tick of a task: its id contains it.
fn tick_of(task: &Task) -> Timestamp {
    let millis = (task.id.as_uuid().as_u128() >> 80) & ((1 << 44) - 1);
    Timestamp::from_millis(i64::try_from(millis).unwrap())
}

/// The tick of each task, in order.
async fn fired(queue: &Queue) -> Vec<Timestamp> {
    let all = queue.list_all(TaskFilter::default());
    let tasks: Vec<Task> = all.try_collect().await.unwrap();
    let mut ticks: Vec<Timestamp> = tasks.iter().map(tick_of).collect();
    ticks.sort_unstable();
    ticks
}

/// Waits until this many ticks after `time` are fired.
async fn wait_for_ticks(queue: &Queue, time: Timestamp, count: usize) {
    let runtime = TokioRuntime::shared();
    let until = runtime.monotonic() + LIMIT;
    loop {
        let ticks = fired(queue).await;
        if ticks.iter().filter(|tick| **tick > time).count() >= count {
            return;
        }
        assert!(
            runtime.monotonic() < until,
            "fewer than {count} ticks after {time} are fired: {ticks:?}"
        );
        runtime.sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_leader_fires_each_tick_once_and_misses_none() {
    let mut cluster = Cluster::start();
    let queue = cluster.queue().await;
    let spec = ScheduleSpec::every_ms(1_000, TaskTemplate::new("report".parse().unwrap()));
    let added = queue.schedules().add(NAME, spec.clone()).await.unwrap();
    let first = added.next.unwrap();
    wait_for_ticks(&queue, added.created_at, 3).await;

    let leader = cluster.leader();
    cluster.kill(leader);
    // The dead leader fired none of the ticks that come now.
    let killed_at = TokioRuntime::shared().now();
    cluster.leader();
    wait_for_ticks(&queue, killed_at, 5).await;

    // Without this, ticks would be fired between the two reads below.
    queue.schedules().pause(NAME).await.unwrap();
    let ticks = fired(&queue).await;
    let last = *ticks.last().unwrap();
    let rule = spec.ticks().unwrap();
    let expected = rule.between(first.minus_millis(1), last, TICKS_MAX);
    assert_eq!(ticks, expected, "one task for each tick");
    let info = queue.schedules().get(NAME).await.unwrap();
    assert_eq!((info.fired, info.missed), (ticks.len() as u64, 0));
}
