use std::sync::atomic::{AtomicU64, Ordering};

use qo_store::runtime::Runtime;

use super::*;

fn scheduler(seed: u64) -> Scheduler {
    Scheduler::new(seed, Trace::new(true))
}

#[test]
fn time_jumps_from_timer_to_timer() {
    let sched = scheduler(1);
    let inner = sched.clone();
    sched
        .run(Box::pin(async move {
            inner.sleep(Duration::from_hours(5)).await;
            inner.sleep(Duration::from_millis(1)).await;
        }))
        .unwrap();
    assert_eq!(
        sched.elapsed(),
        Duration::from_hours(5) + Duration::from_millis(1)
    );
}

#[test]
fn a_dead_process_does_nothing_more_and_a_stopped_one_goes_on_later() {
    let sched = scheduler(2);
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let processes: Vec<_> = (0..2)
        .map(|place| {
            let process = sched.start_process("p", Random::of(&[place]), 0);
            let runtime = SimRuntime::of(&sched, process);
            let counts = Arc::clone(&counts);
            sched.spawn(
                process,
                Box::pin(async move {
                    loop {
                        runtime.sleep(Duration::from_secs(1)).await;
                        counts[usize::try_from(place).unwrap()].fetch_add(1, Ordering::Relaxed);
                    }
                }),
            );
            process
        })
        .collect();
    let inner = sched.clone();
    sched
        .run(Box::pin(async move {
            inner.sleep(Duration::from_millis(10_500)).await;
            inner.kill(processes[0]);
            inner.died(processes[0]).await;
            inner.pause(processes[1], Duration::from_secs(100));
            inner.sleep(Duration::from_secs(101)).await;
        }))
        .unwrap();
    assert_eq!(counts[0].load(Ordering::Relaxed), 10);
    assert!((11..=12).contains(&counts[1].load(Ordering::Relaxed)));
}

#[test]
fn a_doomed_process_dies_at_an_await() {
    let sched = scheduler(3);
    let process = sched.start_process("p", Random::of(&[3]), 0);
    let runtime = SimRuntime::of(&sched, process);
    sched.doom(process, 3);
    sched.spawn(
        process,
        Box::pin(async move {
            loop {
                runtime.sleep(Duration::from_secs(1)).await;
            }
        }),
    );
    let inner = sched.clone();
    sched
        .run(Box::pin(async move { inner.died(process).await }))
        .unwrap();
    assert_eq!(sched.elapsed(), Duration::from_secs(2));
}

#[test]
fn a_loop_without_a_pause_and_a_wait_without_an_end_are_told() {
    let sched = scheduler(4);
    let endless = async {
        loop {
            std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                Poll::<()>::Pending
            })
            .await;
        }
    };
    assert_eq!(sched.run(Box::pin(endless)), Err(Stuck::Livelock));
    let sched = scheduler(4);
    assert_eq!(
        sched.run(Box::pin(std::future::pending())),
        Err(Stuck::Deadlock)
    );
}

#[test]
fn the_wall_clock_of_a_process_can_be_wrong_and_jump() {
    let sched = scheduler(5);
    let process = sched.start_process("p", Random::of(&[5]), -5_000);
    let runtime = SimRuntime::of(&sched, process);
    assert_eq!(runtime.now().as_millis(), BEGIN_MS - 5_000);
    sched.jump_clock(process, 7_000);
    assert_eq!(runtime.now().as_millis(), BEGIN_MS + 2_000);
    assert_eq!(runtime.monotonic(), Duration::ZERO);
}

#[test]
fn the_seed_chooses_the_order() {
    let order = |seed| {
        let sched = scheduler(seed);
        let inner = sched.clone();
        sched
            .run(Box::pin(async move {
                for number in 0..20_u32 {
                    let sched = inner.clone();
                    inner.spawn(
                        HARNESS,
                        Box::pin(async move { sched.note(HARNESS, || number.to_string()) }),
                    );
                }
                inner.sleep(Duration::from_secs(1)).await;
            }))
            .unwrap();
        sched.take_trace()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}
