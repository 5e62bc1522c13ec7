//! The examples run without errors.

use super::soon;

macro_rules! example {
    ($module:ident, $path:literal) => {
        #[path = $path]
        #[allow(dead_code, reason = "its main function is not called")]
        mod $module;
    };
}

example!(progress, "../../../examples/progress.rs");
example!(retries, "../../../examples/retries.rs");
example!(web, "../../../examples/web.rs");
example!(worker, "../../../examples/worker.rs");

#[tokio::test]
async fn a_producer_and_a_worker() {
    soon("the example", worker::run()).await.unwrap();
}

#[tokio::test]
async fn retries_and_dead_letters() {
    soon("the example", retries::run()).await.unwrap();
}

#[tokio::test]
async fn progress_and_a_cancel() {
    soon("the example", progress::run()).await.unwrap();
}

#[tokio::test]
async fn a_web_application() {
    let response = soon("the example", web::run(false)).await.unwrap();
    assert!(
        response.contains("completed") && response.contains("ada@example.org"),
        "{response}"
    );
}
