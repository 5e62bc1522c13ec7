//! What goes into a command, and what comes out of it.

use std::time::Duration;

use qo::{Status, TaskType};
use qo_cli::handlers::exec::{CommandLine, ExecHandler};
use serde_json::json;

use super::{Bench, any_line, error, exec_settings, shell, task_type};

#[tokio::test(flavor = "multi_thread")]
async fn the_input_is_on_standard_input_and_the_output_on_standard_output() {
    let bench = Bench::new(shell("cat")).await;
    let task = bench.run(&json!({ "to": "ada", "n": [1, 2] })).await;
    assert_eq!(task.status, Status::Completed);
    let output = bench.output(&task).await.unwrap();
    assert_eq!(output, r#"{"n":[1,2],"to":"ada"}"#);

    let bench = Bench::new(shell("echo hello; echo world")).await;
    let task = bench.run(&json!(null)).await;
    let output = bench.output(&task).await.unwrap();
    assert_eq!(output, r#""hello\nworld""#);

    let bench = Bench::new(shell("true")).await;
    let task = bench.run(&json!(null)).await;
    assert_eq!(task.status, Status::Completed);
    assert_eq!(bench.output(&task).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_gets_its_arguments_as_they_are() {
    let arguments = vec!["%s|".to_owned(), "a b".to_owned(), "$HOME".to_owned()];
    let command = CommandLine::Program("printf".to_owned(), arguments);
    let bench = Bench::new(ExecHandler::new(task_type(), command, exec_settings())).await;
    let task = bench.run(&json!(null)).await;
    assert_eq!(bench.output(&task).await.unwrap(), r#""a b|$HOME|""#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_is_retried_and_named() {
    let command = CommandLine::Program("/no/such/program".to_owned(), Vec::new());
    let bench = Bench::new(ExecHandler::new(task_type(), command, exec_settings())).await;
    let id = bench
        .submit_with(&json!(null), 1, Duration::from_mins(1))
        .await;
    let task = bench.end(id).await;
    assert!(
        error(&task).contains("/no/such/program could not be started"),
        "{}",
        error(&task)
    );
    assert_eq!(task.attempt, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_facts_of_the_task_are_in_variables() {
    let bench = Bench::new(shell("env | grep ^QO_ | sort")).await;
    let id = bench
        .submit_with(&json!(null), 7, Duration::from_mins(5))
        .await;
    let task = bench.end(id).await;
    let output: String = serde_json::from_str(&bench.output(&task).await.unwrap()).unwrap();
    let fact = |name: &str| {
        let line = output
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("{name} is missing in\n{output}"))
            .to_owned()
    };
    assert_eq!(fact("QO_TASK_ID"), id.to_string());
    assert_eq!(fact("QO_TASK_TYPE"), "job");
    assert_eq!(fact("QO_ATTEMPT"), "1");
    assert_eq!(fact("QO_QUEUE"), "default");
    assert_eq!(fact("QO_MAX_RETRIES"), "7");
    assert_eq!(fact("QO_RETRY_COUNT"), "0");
    assert!(fact("QO_DEADLINE").parse::<qo::Timestamp>().unwrap() > task.created_at);
    assert_eq!(fact("QO_CREATED_AT"), task.created_at.to_string());
    assert!(fact("QO_LEASE_ID").parse::<qo::LeaseId>().is_ok());
    assert!(!fact("QO_WORKER_ID").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_exit_code_means_what_the_table_says() {
    let bench = Bench::new(any_line()).await;
    // With one retry left, a task that fails for good has one attempt, and one that is retried has two.
    for (code, attempts) in [
        (1, 2),
        (2, 2),
        (64, 1),
        (65, 1),
        (70, 2),
        (75, 2),
        (78, 1),
        (127, 2),
        (255, 2),
    ] {
        let line = json!(format!("echo no >&2; exit {code}"));
        let id = bench.submit_with(&line, 1, Duration::from_mins(1)).await;
        let task = bench.end(id).await;
        let text = error(&task);
        assert!(
            text.starts_with(&format!("exit code {code}")),
            "{code}: {text}"
        );
        assert!(text.ends_with(": no"), "{code}: {text}");
        assert_eq!(task.attempt, attempts, "{code}");
    }
    let killed = bench.run(&json!("kill -SEGV $$")).await;
    assert_eq!(error(&killed), "killed by signal 11");
    let done = bench.run(&json!("exit 0")).await;
    assert_eq!(done.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_75_with_a_wish_puts_the_task_off_without_counting() {
    let bench = Bench::new(shell(
        "if [ $QO_ATTEMPT = 1 ]; then echo '::snooze 1s' >&2; exit 75; fi; echo $QO_RETRY_COUNT",
    ))
    .await;
    // A retry would end it, since none is left.
    let task = bench.run(&json!(null)).await;
    assert_eq!(task.status, Status::Completed, "{task:?}");
    assert_eq!(task.attempt, 2);
    assert_eq!(bench.output(&task).await.unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_does_not_read_its_input_is_fine() {
    let bench = Bench::new(shell("exec <&-; echo done")).await;
    let large = json!("x".repeat(200_000));
    let task = bench.run(&large).await;
    assert_eq!(task.status, Status::Completed, "{task:?}");
    assert_eq!(bench.output(&task).await.unwrap(), r#""done""#);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_inputs_and_outputs_pass_through_while_both_flow() {
    let mut settings = exec_settings();
    settings.output_max_bytes = 1024 * 1024;
    let command = CommandLine::Shell("cat".to_owned());
    let bench = Bench::new(ExecHandler::new(task_type(), command, settings)).await;
    let input = json!("x".repeat(900_000));
    let task = bench.run(&input).await;
    assert_eq!(task.status, Status::Completed, "{:?}", task.last_error);
    assert_eq!(bench.output(&task).await.unwrap(), input.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_output_fails_for_good_and_says_so() {
    let bench = Bench::new(any_line()).await;
    for line in ["yes", "head -c 65537 /dev/zero | tr '\\\\0' x; exit 0"] {
        let id = bench
            .submit_with(&json!(line), 3, Duration::from_mins(1))
            .await;
        let task = bench.end(id).await;
        let text = error(&task);
        assert!(text.contains("more than 65536 bytes"), "{text}");
        assert!(text.contains("--max-output"), "{text}");
        assert_eq!(task.attempt, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_standard_error_is_the_end_of_the_error() {
    let bench = Bench::new(any_line()).await;
    let line = "i=0; while [ $i -lt 500 ]; do echo line $i of the trace >&2; i=$((i+1)); done; echo why it failed >&2; exit 1";
    let task = bench.run(&json!(line)).await;
    let text = error(&task);
    assert!(text.starts_with("exit code 1: why it failed\n"), "{text}");
    assert!(
        text.ends_with("line 499 of the trace\nwhy it failed"),
        "{text}"
    );
    assert!(text.len() > 4_000 && text.len() <= 4_096, "{}", text.len());
    assert!(!text.contains("line 0 of"));
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_on_standard_error_reaches_the_task() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let line = format!(
        "echo '::progress 40 half way' >&2; while [ ! -e {} ]; do sleep 0.05; done; echo said >&2; exit 1",
        go.display()
    );
    let bench = Bench::new(shell(&line)).await;
    let id = bench.submit(&json!(null)).await;
    let task = bench
        .until(id, "progress", |task| task.progress.is_some())
        .await;
    let progress = task.progress.unwrap();
    assert!((progress.percent - 40.0).abs() < f64::EPSILON);
    assert_eq!(progress.message.as_deref(), Some("half way"));
    std::fs::write(go, "").unwrap();
    let task = bench.end(id).await;
    assert_eq!(error(&task), "exit code 1: said");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_handlers_share_a_worker() {
    let queue = qo::connect("memory:").await.unwrap();
    let handler = |name: &str, line: &str| {
        let line = CommandLine::Shell(line.to_owned());
        ExecHandler::new(TaskType::new(name).unwrap(), line, exec_settings())
    };
    let worker = qo::Worker::builder(queue.clone())
        .handler(handler("one", "echo 1"))
        .handler(handler("two", "echo 2"))
        .build()
        .unwrap()
        .spawn();
    for (name, expected) in [("one", "1"), ("two", "2")] {
        let submitted = queue.task(name, &()).unwrap().submit().await.unwrap();
        let task = queue
            .wait(submitted.task.id, super::PATIENCE)
            .await
            .unwrap();
        let output = queue.output(&task).await.unwrap().unwrap();
        assert_eq!(output.as_str(), expected);
    }
    worker.stop().await.unwrap();
}
