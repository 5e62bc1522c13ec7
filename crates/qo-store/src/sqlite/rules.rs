//! CORS and lifecycle rules as JSON in a column.

use serde::{Deserialize, Serialize};

use super::error::damaged;
use crate::admin::{CorsRule, LifecycleRule};

#[derive(Serialize, Deserialize)]
#[serde(remote = "CorsRule")]
struct CorsRuleFields {
    allowed_origins: Vec<String>,
    allowed_methods: Vec<String>,
    allowed_headers: Vec<String>,
    expose_headers: Vec<String>,
    max_age_seconds: u32,
}

#[derive(Serialize, Deserialize)]
struct StoredCorsRule(#[serde(with = "CorsRuleFields")] CorsRule);

#[derive(Serialize, Deserialize)]
#[serde(remote = "LifecycleRule")]
struct LifecycleRuleFields {
    id: String,
    prefix: String,
    expire_days: Option<u32>,
    expire_noncurrent_days: Option<u32>,
    expire_delete_markers: bool,
    abort_multipart_days: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct StoredLifecycleRule(#[serde(with = "LifecycleRuleFields")] LifecycleRule);

pub(super) fn encode_cors(rules: &[CorsRule]) -> serde_json::Result<String> {
    let rules: Vec<_> = rules.iter().cloned().map(StoredCorsRule).collect();
    serde_json::to_string(&rules)
}

pub(super) fn decode_cors(json: &str) -> rusqlite::Result<Vec<CorsRule>> {
    let rules: Vec<StoredCorsRule> = serde_json::from_str(json)
        .map_err(|error| damaged(format!("cannot parse the CORS rules: {error}")))?;
    Ok(rules.into_iter().map(|rule| rule.0).collect())
}

pub(super) fn encode_lifecycle(rules: &[LifecycleRule]) -> serde_json::Result<String> {
    let rules: Vec<_> = rules.iter().cloned().map(StoredLifecycleRule).collect();
    serde_json::to_string(&rules)
}

pub(super) fn decode_lifecycle(json: &str) -> rusqlite::Result<Vec<LifecycleRule>> {
    let rules: Vec<StoredLifecycleRule> = serde_json::from_str(json)
        .map_err(|error| damaged(format!("cannot parse the lifecycle rules: {error}")))?;
    Ok(rules.into_iter().map(|rule| rule.0).collect())
}
