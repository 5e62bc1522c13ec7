//! For the tests of engines with tasks of a later version, each of which writes such tasks in its own form.

use qo_core::TaskId;

use crate::api::SubmitRequest;
use crate::engine::Engine;
use crate::error::EngineError;

/// The errors of everything that reads or changes this task: its reads and operations, a submit with its id, and one with its key.
pub async fn refusals(
    engine: &dyn Engine,
    id: TaskId,
    with_id: SubmitRequest,
    with_key: SubmitRequest,
) -> Vec<EngineError> {
    let with_id = SubmitRequest {
        id: Some(id),
        ..with_id
    };
    [
        engine.get(id).await.map(drop),
        engine.cancel(id, None).await.map(drop),
        engine.purge(id).await,
        engine.submit(with_id).await.map(drop),
        engine.submit(with_key).await.map(drop),
    ]
    .map(Result::unwrap_err)
    .into()
}
