//! Processes with different wall clocks share work by the store's clock.

use std::time::Duration;

use futures_util::future::join_all;
use qo_check::CallLog;
use qo_core::Json;
use qo_engine::Engine;
use qo_engine::api::{SubmitRequest, WorkerInfo};
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::wrap::Delay;

use super::bucket::Bucket;
use super::checker::{self, Tolerance};
use super::process::{Process, Setting};
use super::stage::small;
use super::upkeep;

const TASKS: usize = 50;

#[tokio::test(start_paused = true)]
async fn processes_with_clocks_90_s_apart_expire_no_lease_early() {
    for (first_ms, second_ms) in [(0, 90_000), (0, -90_000), (-45_000, 45_000)] {
        let bucket = Bucket::shared();
        let log = CallLog::new(bucket.ticks.clone());
        let process = |name: &str, seed, skew_ms| {
            let setting = Setting {
                skew_ms,
                delay: Some(Delay::Uniform {
                    low: Duration::from_millis(5),
                    high: Duration::from_millis(60),
                }),
                ..Setting::new(name, seed)
            };
            Process::start(&bucket, &log, setting)
        };
        let processes = [
            process("first", 1, first_ms),
            process("second", 2, second_ms),
        ];
        for process in &processes {
            let info = WorkerInfo::new(process.name.parse().unwrap(), process.engine.now());
            process.engine.heartbeat(&info).await.unwrap();
        }
        for n in 0..TASKS {
            let mut request = SubmitRequest::new("job".parse().unwrap(), Json::null());
            let submitter = &processes[n % 2];
            request.id = Some(submitter.runtime.new_task_id());
            submitter.submit(request).await.unwrap();
        }
        let (first, second) = futures_util::future::join(
            work_and_watch(&processes[0]),
            work_and_watch(&processes[1]),
        )
        .await;
        assert_eq!(first + second, TASKS, "{first_ms} {second_ms}");
        assert!(first > 0 && second > 0, "both work: {first}, {second}");
        for (key, versions) in bucket.versions() {
            let last = versions.last().unwrap().body.clone().unwrap();
            let task = qo_core::task::decode(&last).unwrap();
            assert_eq!(task.attempt, 1, "{key}");
        }
        upkeep::drain(&bucket, &log).await.unwrap();
        let breaches =
            checker::check(&bucket, &log, &processes[0].engine, Tolerance::WrongClocks).await;
        assert!(breaches.is_empty(), "{breaches}");
    }
}

/// Runs tasks that each take longer than a lease, and checks all leases meanwhile.
async fn work_and_watch(process: &Process) -> usize {
    let work = async {
        let mut done = 0;
        loop {
            let tasks = process.claim(8, 5_000).await.unwrap();
            if tasks.is_empty() {
                return done;
            }
            done += tasks.len();
            join_all(tasks.iter().map(|task| async {
                for _ in 0..4 {
                    process.sleep(10).await;
                    process.renew(task).await.unwrap();
                }
                process.complete(task, small()).await.unwrap();
            }))
            .await;
        }
    };
    let watch = async {
        loop {
            upkeep::check_leases(process).await.unwrap();
            process.runtime.sleep(Duration::from_secs(3)).await;
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = watch => 0,
    }
}
