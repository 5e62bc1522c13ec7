//! Programs that try to harm the worker. Each ends with a clear error, and the same sandbox runs the next program.

use std::sync::Arc;
use std::time::Duration;

use qo_wasi::{Input, Limits, RunError, Sandbox};

use crate::programs::{component, hello, module, spins};
use crate::support::{binary, run, sandbox, sandbox_with};

/// The sandbox still works.
async fn lives_on(sandbox: &Arc<Sandbox>) {
    let ended = run(sandbox, &hello(), Input::empty()).await;
    assert_eq!(ended.output, b"hello\n");
}

async fn trap(text: &str) -> String {
    let sandbox = sandbox();
    let ended = run(&sandbox, text, Input::empty()).await;
    lives_on(&sandbox).await;
    match ended.error() {
        RunError::Trap { detail } => detail,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn traps_name_their_reason_and_function() {
    let crash = module(r#"(func $crash unreachable) (func (export "_start") (call $crash))"#);
    let detail = trap(&crash).await;
    assert!(
        detail.contains("unreachable") && detail.ends_with(", in crash"),
        "{detail}"
    );
    let divide =
        module(r#"(func (export "_start") (drop (i32.div_s (i32.const 1) (i32.const 0))))"#);
    assert!(trap(&divide).await.contains("divide by zero"));
    let outside = module(r#"(func (export "_start") (i32.store (i32.const -8) (i32.const 0)))"#);
    assert!(trap(&outside).await.contains("out of bounds"));
    assert!(
        trap(&component("unreachable"))
            .await
            .contains("unreachable")
    );
}

#[tokio::test]
async fn endless_recursion_is_a_trap() {
    let recursion = module(r#"(func $down (call $down)) (func (export "_start") (call $down))"#);
    assert!(trap(&recursion).await.contains("call stack exhausted"));
}

/// Runs on one thread, so that a program which did not yield would block this test for ever.
#[tokio::test(flavor = "current_thread")]
async fn an_endless_loop_ends_when_its_future_is_dropped() {
    let sandbox = sandbox();
    for text in [
        spins(),
        component("(loop $for_ever (br $for_ever)) (i32.const 0)"),
    ] {
        let program = sandbox.compile(&binary(&text)).unwrap();
        let mut started = sandbox.run(program, vec!["spins".to_owned()], Input::empty());
        let ended = tokio::time::timeout(Duration::from_millis(200), &mut started.ended).await;
        assert!(ended.is_err());
        drop(started.ended);
        // The reader learns that the output is incomplete.
        assert!(started.output.next().await.unwrap().is_err());
    }
    lives_on(&sandbox).await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_loop_in_a_start_function_ends_too() {
    let sandbox = sandbox();
    let text = module(
        r#"(func $spin (loop $for_ever (br $for_ever))) (start $spin) (func (export "_start"))"#,
    );
    let program = sandbox.compile(&binary(&text)).unwrap();
    let started = sandbox.run(program, vec!["spins".to_owned()], Input::empty());
    let ended = tokio::time::timeout(Duration::from_millis(200), started.ended).await;
    assert!(ended.is_err());
    lives_on(&sandbox).await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_sleeping_program_ends_when_its_future_is_dropped() {
    let sandbox = sandbox();
    // A subscription to the monotonic clock, for an hour.
    let text = r#"(module
      (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1)
      (func (export "_start")
        (i32.store (i32.const 16) (i32.const 1))
        (i64.store (i32.const 24) (i64.const 3600000000000))
        (drop (call $poll (i32.const 0) (i32.const 128) (i32.const 1) (i32.const 256)))))"#;
    let program = sandbox.compile(&binary(text)).unwrap();
    let started = sandbox.run(program, vec!["sleeps".to_owned()], Input::empty());
    let ended = tokio::time::timeout(Duration::from_millis(200), started.ended).await;
    assert!(ended.is_err());
    lives_on(&sandbox).await;
}

#[tokio::test]
async fn a_memory_bomb_meets_the_limit() {
    let limits = Limits {
        memory_bytes: 10 << 20,
        ..Limits::default()
    };
    let sandbox = sandbox_with(limits);
    let bomb = module(
        r#"(func (export "_start")
        (loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
        unreachable)"#,
    );
    let at_start = r#"(module (memory 200) (func (export "_start")))"#;
    let many = r#"(module
        (memory 60) (memory 60) (memory 60)
        (func (export "_start")))"#;
    for text in [bomb.as_str(), at_start, many] {
        let ended = run(&sandbox, text, Input::empty()).await;
        match ended.error() {
            RunError::MemoryLimit { limit, .. } => assert_eq!(limit, limits.memory_bytes),
            other => panic!("{other:?}"),
        }
        lives_on(&sandbox).await;
    }
    // A program that can go on without the memory may do so.
    let modest = module(
        r#"(func (export "_start")
        (if (i32.ne (memory.grow (i32.const 1000)) (i32.const -1)) (then unreachable)))"#,
    );
    assert_eq!(run(&sandbox, &modest, Input::empty()).await.code(), 0);
}

#[tokio::test]
async fn a_table_bomb_meets_the_limit() {
    let sandbox = sandbox();
    let bomb = r#"(module
        (table $t 1 funcref)
        (func (export "_start")
          (loop $more
            (br_if $more (i32.ne (table.grow $t (ref.null func) (i32.const 100000)) (i32.const -1))))
          unreachable))"#;
    let ended = run(&sandbox, bomb, Input::empty()).await;
    assert!(matches!(ended.error(), RunError::MemoryLimit { .. }));
    lives_on(&sandbox).await;
}

#[tokio::test]
async fn too_many_memories_are_refused() {
    let sandbox = sandbox();
    let memories = "(memory 0) ".repeat(40);
    let text = format!(r#"(module {memories} (func (export "_start")))"#);
    let ended = run(&sandbox, &text, Input::empty()).await;
    let RunError::Trap { detail } = ended.error() else {
        panic!("{ended:?}")
    };
    assert!(detail.contains("memory count too high"), "{detail}");
    lives_on(&sandbox).await;
}

#[tokio::test]
async fn too_many_instances_are_refused() {
    let sandbox = sandbox();
    let with_instances = |count: usize| {
        let more = "(core instance (instantiate $program))".repeat(count);
        let instance = "(core instance $instance (instantiate $program))";
        component("(i32.const 0)").replace(instance, &format!("{instance} {more}"))
    };
    let few = run(&sandbox, &with_instances(20), Input::empty()).await;
    assert_eq!(few.code(), 0);
    let ended = run(&sandbox, &with_instances(200), Input::empty()).await;
    let RunError::Trap { detail } = ended.error() else {
        panic!("{ended:?}")
    };
    assert!(detail.contains("instance count too high"), "{detail}");
    lives_on(&sandbox).await;
}

#[tokio::test]
async fn an_output_flood_meets_the_limit() {
    let limit = 1 << 20;
    let sandbox = sandbox_with(Limits {
        output_bytes: limit,
        ..Limits::default()
    });
    let flood = module(
        r#"(func (export "_start")
        (loop $more (call $write (i32.const 1) (i32.const 0) (i32.const 65536)) (br $more)))"#,
    );
    let ended = run(&sandbox, &flood, Input::empty()).await;
    assert_eq!(ended.error(), RunError::OutputLimit { limit });
    assert!(ended.output.len() as u64 <= limit);
    lives_on(&sandbox).await;
}

#[tokio::test]
async fn a_flood_on_standard_error_keeps_its_end_only() {
    let sandbox = sandbox();
    let flood = module(
        r#"(func (export "_start") (local $i i32)
        (loop $more
          (call $write (i32.const 2) (i32.const 2048) (i32.const 60000))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $more (i32.lt_u (local.get $i) (i32.const 100))))
        (call $write (i32.const 2) (i32.const 1024) (i32.const 6))
        (call $exit (i32.const 9)))"#,
    );
    let ended = run(&sandbox, &flood, Input::empty()).await;
    assert_eq!(ended.code(), 9);
    assert!(ended.ended.stderr.len() <= 8192 && ended.ended.stderr.ends_with(b"hello\n"));
    lives_on(&sandbox).await;
}

#[tokio::test]
async fn a_huge_system_call_is_refused() {
    let sandbox = sandbox();
    // 100 MiB of random bytes at once.
    let text = r#"(module
      (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
      (memory (export "memory") 1700)
      (func (export "_start")
        (if (i32.eqz (call $random (i32.const 0) (i32.const 104857600))) (then unreachable))))"#;
    let ended = run(&sandbox, text, Input::empty()).await;
    assert!(
        ended.ended.result.as_ref().is_ok_and(|exit| exit.code == 0)
            || matches!(&ended.ended.result, Err(RunError::Trap { detail }) if !detail.contains("unreachable")),
        "{ended:?}"
    );
    lives_on(&sandbox).await;
}
