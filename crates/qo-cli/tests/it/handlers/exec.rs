//! Input and output of commands.

use std::time::Duration;

use qo::{Status, TaskType};
use qo_cli::handlers::exec::{CommandLine, ExecHandler};
use serde_json::json;

use super::{HandlerTest, error, exec_settings, run_input, shell, task_type};

#[tokio::test(flavor = "multi_thread")]
async fn the_input_is_on_standard_input_and_the_output_on_standard_output() {
    let test = HandlerTest::new(shell("cat")).await;
    let task = test.run(&json!({ "to": "ada", "n": [1, 2] })).await;
    assert_eq!(task.status, Status::Completed);
    let output = test.output(&task).await.unwrap();
    assert_eq!(output, r#"{"n":[1,2],"to":"ada"}"#);

    let test = HandlerTest::new(shell("echo hello; echo world")).await;
    let task = test.run(&json!(null)).await;
    let output = test.output(&task).await.unwrap();
    assert_eq!(output, r#""hello\nworld""#);

    let test = HandlerTest::new(shell("true")).await;
    let task = test.run(&json!(null)).await;
    assert_eq!(task.status, Status::Completed);
    assert_eq!(test.output(&task).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_receives_its_arguments_unchanged() {
    let arguments = vec!["%s|".to_owned(), "a b".to_owned(), "$HOME".to_owned()];
    let command = CommandLine::Program("printf".to_owned(), arguments);
    let test = HandlerTest::new(ExecHandler::new(task_type(), command, exec_settings())).await;
    let task = test.run(&json!(null)).await;
    assert_eq!(test.output(&task).await.unwrap(), r#""a b|$HOME|""#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_is_retried_and_named_in_the_error() {
    let command = CommandLine::Program("/no/such/program".to_owned(), Vec::new());
    let test = HandlerTest::new(ExecHandler::new(task_type(), command, exec_settings())).await;
    let id = test
        .submit_with(&json!(null), 1, Duration::from_mins(1))
        .await;
    let task = test.end(id).await;
    assert!(
        error(&task).contains("cannot start /no/such/program"),
        "{}",
        error(&task)
    );
    assert_eq!(task.attempt, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_describe_the_task() {
    let test = HandlerTest::new(shell("env | grep ^QO_ | sort")).await;
    let id = test
        .submit_with(&json!(null), 7, Duration::from_mins(5))
        .await;
    let task = test.end(id).await;
    let output: String = serde_json::from_str(&test.output(&task).await.unwrap()).unwrap();
    let variable = |name: &str| {
        let line = output
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("{name} is missing in\n{output}"))
            .to_owned()
    };
    assert_eq!(variable("QO_TASK_ID"), id.to_string());
    assert_eq!(variable("QO_TASK_TYPE"), "job");
    assert_eq!(variable("QO_ATTEMPT"), "1");
    assert_eq!(variable("QO_QUEUE"), "default");
    assert_eq!(variable("QO_MAX_RETRIES"), "7");
    assert_eq!(variable("QO_RETRY_COUNT"), "0");
    assert!(variable("QO_DEADLINE").parse::<qo::Timestamp>().unwrap() > task.created_at);
    assert_eq!(variable("QO_CREATED_AT"), task.created_at.to_string());
    assert!(variable("QO_LEASE_ID").parse::<qo::LeaseId>().is_ok());
    assert!(!variable("QO_WORKER_ID").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_map_as_documented() {
    let test = HandlerTest::new(run_input()).await;
    // With one retry, a permanent failure has one attempt and a retried one has two.
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
        let id = test.submit_with(&line, 1, Duration::from_mins(1)).await;
        let task = test.end(id).await;
        let text = error(&task);
        assert!(
            text.starts_with(&format!("exit code {code}")),
            "{code}: {text}"
        );
        assert!(text.ends_with(": no"), "{code}: {text}");
        assert_eq!(task.attempt, attempts, "{code}");
    }
    let killed = test.run(&json!("kill -SEGV $$")).await;
    assert_eq!(error(&killed), "killed by signal 11");
    let done = test.run(&json!("exit 0")).await;
    assert_eq!(done.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_75_with_a_snooze_line_does_not_count_as_a_retry() {
    let test = HandlerTest::new(shell(
        "if [ $QO_ATTEMPT = 1 ]; then echo '::snooze 1s' >&2; exit 75; fi; echo $QO_RETRY_COUNT",
    ))
    .await;
    // A retry would fail the task, since none is left.
    let task = test.run(&json!(null)).await;
    assert_eq!(task.status, Status::Completed, "{task:?}");
    assert_eq!(task.attempt, 2);
    assert_eq!(test.output(&task).await.unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_need_not_read_its_input() {
    let test = HandlerTest::new(shell("exec <&-; echo done")).await;
    let large = json!("x".repeat(200_000));
    let task = test.run(&large).await;
    assert_eq!(task.status, Status::Completed, "{task:?}");
    assert_eq!(test.output(&task).await.unwrap(), r#""done""#);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_inputs_and_outputs_are_streamed() {
    let mut settings = exec_settings();
    settings.output_max_bytes = 1024 * 1024;
    let command = CommandLine::Shell("cat".to_owned());
    let test = HandlerTest::new(ExecHandler::new(task_type(), command, settings)).await;
    let input = json!("x".repeat(900_000));
    let task = test.run(&input).await;
    assert_eq!(task.status, Status::Completed, "{:?}", task.last_error);
    assert_eq!(test.output(&task).await.unwrap(), input.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_output_is_a_permanent_failure() {
    let test = HandlerTest::new(run_input()).await;
    for line in ["yes", "head -c 65537 /dev/zero | tr '\\\\0' x; exit 0"] {
        let id = test
            .submit_with(&json!(line), 3, Duration::from_mins(1))
            .await;
        let task = test.end(id).await;
        let text = error(&task);
        assert!(text.contains("more than 65536 bytes"), "{text}");
        assert!(text.contains("--max-output"), "{text}");
        assert_eq!(task.attempt, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_contains_the_end_of_standard_error() {
    let test = HandlerTest::new(run_input()).await;
    let line = "i=0; while [ $i -lt 500 ]; do echo line $i of the trace >&2; i=$((i+1)); done; echo why it failed >&2; exit 1";
    let task = test.run(&json!(line)).await;
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
async fn standard_error_is_the_log_of_an_attempt() {
    let test = HandlerTest::new(run_input()).await;
    let line = "echo connecting >&2; echo ::progress 10 >&2; echo '[1]'";
    let task = test.run(&json!(line)).await;
    assert_eq!(task.status, qo::Status::Completed);
    assert_eq!(*task.logs()[0].text, *"connecting\n");
    // Without success, standard output is no output of the task.
    let line = "echo half of it; echo why it failed >&2; exit 65";
    let task = test.run(&json!(line)).await;
    let text = &*task.logs()[0].text;
    assert_eq!(text, "why it failed\nstandard output:\nhalf of it\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_on_standard_error_reaches_the_task() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let line = format!(
        "echo '::progress 40 half way' >&2; while [ ! -e {} ]; do sleep 0.05; done; echo said >&2; exit 1",
        go.display()
    );
    let test = HandlerTest::new(shell(&line)).await;
    let id = test.submit(&json!(null)).await;
    let task = test
        .until(id, "progress", |task| task.progress.is_some())
        .await;
    let progress = task.progress.unwrap();
    assert!((progress.percent - 40.0).abs() < f64::EPSILON);
    assert_eq!(progress.message.as_deref(), Some("half way"));
    std::fs::write(go, "").unwrap();
    let task = test.end(id).await;
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
        let task = queue.wait(submitted.task.id, super::TIMEOUT).await.unwrap();
        let output = queue.output(&task).await.unwrap().unwrap();
        assert_eq!(output.as_str(), expected);
    }
    worker.stop().await.unwrap();
}
