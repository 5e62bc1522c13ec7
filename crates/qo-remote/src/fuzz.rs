//! Fuzz targets of the wire format. Each takes arbitrary bytes and panics if an invariant is violated.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use qo_core::{Json, Timestamp};
use qo_engine::api::{SubmitRequest, WorkerInfo};
use qo_engine::fuzz::{rewrite, round_trip};

use crate::wire::bulk::BulkBody;
use crate::wire::{CancelBody, OutcomeItem};
use crate::wire::{ClaimBody, Problem, SubmitBody};

/// The bodies of the HTTP API, and the problems that a client reads.
///
/// A body that the server parses is the same after a round trip through the client's form.
pub fn wire_bodies(bytes: &[u8]) {
    if let Some(body) = round_trip::<SubmitBody>(bytes)
        && let Ok(request) = body.into_request()
    {
        submit_request(&request);
    }
    if let Some(body) = round_trip::<ClaimBody>(bytes)
        && let Ok(request) = body.into_request()
    {
        let again = ClaimBody::from_request(&request).into_request();
        assert_eq!(again.as_ref().ok(), Some(&request));
    }
    if let Some(item) = round_trip::<OutcomeItem>(bytes)
        && let Ok((id, operation)) = item.into_operation()
    {
        let again = OutcomeItem::new(id, operation.clone())
            .and_then(|item| item.into_operation().map_err(|_| operation.clone()));
        assert_eq!(again.ok(), Some((id, operation)));
    }
    if let Some(body) = round_trip::<BulkBody>(bytes)
        && let Ok(request) = body.into_request(Timestamp::MIN)
    {
        assert!(
            !request.filter.statuses.is_empty(),
            "an empty list would match every status"
        );
    }
    round_trip::<CancelBody>(bytes);
    round_trip::<WorkerInfo>(bytes);
    if let Some(problem) = round_trip::<Problem>(bytes) {
        let error = problem.into_error("http://localhost");
        assert!(!error.to_string().is_empty());
    }
}

/// A request survives a round trip through its wire format.
pub fn submit_request(request: &SubmitRequest) {
    let (body, text) = rewrite(&SubmitBody::from_request(request.clone()));
    let again = body.and_then(|body| body.into_request().ok());
    let mut expected = request.clone();
    expected.retry_policy.extra = again
        .as_ref()
        .map(|again| again.retry_policy.extra.clone())
        .unwrap_or_default();
    if Json::parse(request.input.as_str()).is_ok() {
        assert_eq!(
            again.as_ref(),
            Some(&expected),
            "{}",
            String::from_utf8_lossy(&text)
        );
    }
}
