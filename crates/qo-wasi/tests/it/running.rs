//! What a program gets, and what it gives back.

use std::io;

use bytes::Bytes;
use futures_util::stream;
use qo_wasi::{Input, RunError};

use crate::programs::{cat, component, component_hello, exits, hello};
use crate::support::{run, sandbox};

#[tokio::test]
async fn input_is_copied_to_output() {
    let sandbox = sandbox();
    let empty = run(&sandbox, &cat(), Input::empty()).await;
    assert_eq!((empty.code(), empty.output.len()), (0, 0));
    assert!(empty.is_complete);

    // More than the pipe holds, in pieces of many sizes.
    let mut expected = Vec::new();
    let chunks: Vec<io::Result<Bytes>> = (0..300_usize)
        .map(|index| {
            let chunk = vec![index.to_le_bytes()[0]; (index * 37) % 9_000];
            expected.extend_from_slice(&chunk);
            Ok(Bytes::from(chunk))
        })
        .collect();
    assert!(expected.len() > 1_000_000);
    let copied = run(&sandbox, &cat(), Input::stream(stream::iter(chunks))).await;
    assert_eq!(copied.code(), 0);
    assert!(copied.is_complete && copied.output == expected);
}

#[tokio::test]
async fn the_exit_code_and_the_end_of_standard_error_are_kept() {
    let ended = run(&sandbox(), &exits(3), Input::empty()).await;
    assert_eq!(ended.code(), 3);
    assert_eq!(ended.ended.stderr, b"hello");
    // A program that exits has said all that it wanted to say.
    assert!(ended.is_complete);
    assert_eq!(ended.output, b"hello\n");
}

#[tokio::test]
async fn preview_2_commands_run_too() {
    let sandbox = sandbox();
    let hello_there = run(&sandbox, &component_hello(), Input::empty()).await;
    assert_eq!(hello_there.code(), 0);
    assert_eq!(hello_there.output, b"hello\n");
    let failed = run(&sandbox, &component("(i32.const 1)"), Input::empty()).await;
    assert_eq!(failed.code(), 1);
}

#[tokio::test]
async fn many_runs_share_a_program_and_a_thread() {
    let sandbox = sandbox();
    let text = hello();
    let runs = (0..50).map(|_| run(&sandbox, &text, Input::empty()));
    for ended in futures_util::future::join_all(runs).await {
        assert_eq!(
            (ended.code(), ended.output.as_slice()),
            (0, &b"hello\n"[..])
        );
    }
}

#[tokio::test]
async fn an_input_that_breaks_off_fails_the_run() {
    let broken = stream::iter([
        Ok(Bytes::from_static(b"first")),
        Err(io::Error::other("the blob is damaged")),
    ]);
    let ended = run(&sandbox(), &cat(), Input::stream(broken)).await;
    let detail = "the blob is damaged".to_owned();
    assert_eq!(ended.error(), RunError::Input { detail });
}

#[tokio::test]
async fn a_program_whose_output_nobody_reads_ends() {
    let sandbox = sandbox();
    let program = sandbox.compile(&crate::support::binary(&cat())).unwrap();
    let endless = stream::repeat_with(|| Ok(Bytes::from_static(b"more")));
    let started = sandbox.run(program, vec!["cat".to_owned()], Input::stream(endless));
    drop(started.output);
    assert_eq!(started.ended.await.result, Err(RunError::OutputDropped));
}
