//! Prepares a bucket: probes it, switches versioning on, and sets CORS rules for the dashboard and lifecycle rules for short-lived
//! objects.
//!
//! Each step reads the current setting and changes it only if needed. A second run changes nothing, and running it again completes
//! a run that crashed.
//!
//! Versioning is never switched on in a bucket that is in use, because that changes how a store behaves. In Ceph RGW 20, objects that are
//! written while versioning is on for a moment can never be swapped again: every `If-Match` fails, although nobody else writes them. So
//! step 2 requires that no worker, no broker and no claim was active for a while. A client that submits during the short time between
//! steps 2 and 3 cannot be seen beforehand. If the probe fails, the report therefore names the objects that were written in that time.
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | probe the bucket as it is | nothing |
//! | 2 | switch versioning on | a bucket that has not been probed with versioning: the next process that starts probes it, and rejects it if the probe fails |
//! | 3 | probe the bucket **again**, because some stores work correctly without versioning and incorrectly with it (Ceph RGW 20 does); if the probe fails, switch versioning back | nothing |
//! | 4 | add CORS and lifecycle rules to the existing ones | nothing |

use std::fmt;

use qo_store::admin::{BucketAdmin, CorsRule, LifecycleRule, Versioning};
use qo_store::probe::{self, ProbeError, ProbeOptions, ProbeReport};
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::{Store, StoreError};
use serde::Serialize;

use qo_engine::payload::digest;

use super::recent_use;

/// The methods that the dashboard uses from a browser.
const CORS_METHODS: [&str; 5] = ["GET", "PUT", "HEAD", "DELETE", "POST"];
/// The response headers that it reads: for compare-and-swap, for versions, and for the store's time.
const CORS_EXPOSED: [&str; 3] = ["ETag", "x-amz-version-id", "Date"];
const CORS_MAX_AGE_SECONDS: u32 = 3_600;
/// Prefixes whose objects are overwritten often or deleted soon. Their old versions are useless; those of a collected blob would keep its
/// bytes forever. The last two are those of broker mode: SlateDB replaces its files, and the JSON engine writes its one object for every
/// group of changes.
const SHORT_LIVED: [&str; 11] = [
    "ready/",
    "later/",
    "leases/",
    "limits/",
    "order/",
    "workers/",
    "meta/",
    "probe/",
    "blobs/",
    "slate/",
    "queue.json",
];
/// How long their old versions and unfinished uploads are kept: one day, the shortest time that S3 allows.
const KEPT_DAYS: u32 = 1;

/// Options of [`init`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InitOptions {
    /// Whether to switch versioning on. Versions are a complete second history besides the one in each task.
    pub versioning: bool,
    /// The origins from which browsers may call the bucket, such as `https://qo.example.org`, or `*`. No rule is set if empty.
    pub cors_origins: Vec<String>,
    /// Only report what would be done.
    pub dry_run: bool,
    /// The limits of the probe.
    pub probe: ProbeOptions,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self {
            versioning: true,
            cors_origins: vec!["*".to_owned()],
            dry_run: false,
            probe: ProbeOptions::default(),
        }
    }
}

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InitOutcome {
    /// The setting was changed.
    Done,
    /// The setting was correct before.
    #[serde(rename = "already_so")]
    Unchanged,
    /// The setting would be changed without `dry_run`.
    WouldDo,
    /// The options exclude this step.
    #[serde(rename = "not_asked")]
    Skipped,
    /// The store does not support it.
    Unsupported,
    /// The step failed.
    Refused,
    /// The step failed because the credentials lack a permission.
    #[serde(rename = "refused")]
    Denied,
}

/// One step of the preparation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InitStep {
    /// `reachable`, `trusted`, `versioning`, `cors` or `lifecycle`.
    pub name: &'static str,
    /// The outcome.
    pub outcome: InitOutcome,
    /// What was found or done, or why not, in one sentence.
    pub detail: String,
}

/// The results of all steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InitReport {
    /// The store's description. It contains no credentials.
    pub store: String,
    /// The steps, in the order in which they ran.
    pub steps: Vec<InitStep>,
}

impl InitReport {
    /// Whether the bucket is usable: no step failed. qo works without settings that a store does not support.
    pub fn is_ready(&self) -> bool {
        let mut steps = self.steps.iter();
        steps.all(|step| !matches!(step.outcome, InitOutcome::Refused | InitOutcome::Denied))
    }

    fn add(&mut self, name: &'static str, (outcome, detail): StepResult) {
        self.steps.push(InitStep {
            name,
            outcome,
            detail,
        });
    }
}

impl fmt::Display for InitReport {
    /// A line for each step.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.store)?;
        for step in &self.steps {
            let outcome = match step.outcome {
                InitOutcome::Done => "done",
                InitOutcome::Unchanged => "unchanged",
                InitOutcome::WouldDo => "would do",
                InitOutcome::Skipped => "skipped",
                InitOutcome::Unsupported => "unsupported",
                InitOutcome::Refused | InitOutcome::Denied => "REFUSED",
            };
            writeln!(f, "  {outcome:<12} {:<11} {}", step.name, step.detail)?;
        }
        Ok(())
    }
}

/// The outcome and the detail text of a step.
type StepResult = (InitOutcome, String);

fn step_result(outcome: InitOutcome, detail: impl Into<String>) -> StepResult {
    (outcome, detail.into())
}

/// Prepares a bucket. Stops early, with a refused step, if the bucket is not usable at all.
pub async fn init(store: &Store, runtime: &dyn Runtime, options: &InitOptions) -> InitReport {
    let mut report = InitReport {
        store: store.description.clone(),
        steps: Vec::new(),
    };
    if let Err(error) = qo_store::check(store, runtime).await {
        report.add(
            "reachable",
            step_result(InitOutcome::Refused, error.to_string()),
        );
        return report;
    }
    let reached = step_result(InitOutcome::Unchanged, "the store responds");
    report.add("reachable", reached);

    let trusted = ensure_trusted(store, runtime, options).await;
    let is_trusted = !matches!(trusted.0, InitOutcome::Refused | InitOutcome::Denied);
    report.add("trusted", trusted);
    if !is_trusted {
        return report;
    }
    let Some(admin) = store.admin.as_deref() else {
        let why = "qo cannot change the settings of this kind of store, and works without them";
        for name in ["versioning", "cors", "lifecycle"] {
            report.add(name, step_result(InitOutcome::Unsupported, why));
        }
        return report;
    };
    report.add(
        "versioning",
        versioning(store, admin, runtime, options).await,
    );
    report.add("cors", cors(admin, options).await.unwrap_or_else(failed));
    let lifecycle = lifecycle(store, admin, options).await;
    report.add("lifecycle", lifecycle.unwrap_or_else(failed));
    report
}

/// Probes the bucket before anything is changed.
async fn ensure_trusted(store: &Store, runtime: &dyn Runtime, options: &InitOptions) -> StepResult {
    let stored = probe::load_report(&store.objects, runtime, &options.probe).await;
    let was_trusted = matches!(&stored, Ok(Some(report)) if report.trusted);
    if options.dry_run {
        return if was_trusted {
            step_result(InitOutcome::Unchanged, "the bucket passed an earlier probe")
        } else {
            step_result(
                InitOutcome::WouldDo,
                "probes the bucket with racing conditional writes",
            )
        };
    }
    match probe::ensure_trusted(
        &store.objects,
        store.admin.as_deref(),
        runtime,
        &options.probe,
    )
    .await
    {
        Ok(report) => {
            let outcome = if was_trusted {
                InitOutcome::Unchanged
            } else {
                InitOutcome::Done
            };
            step_result(outcome, describe_races(&report))
        }
        Err(error @ ProbeError::Denied { .. }) => {
            step_result(InitOutcome::Denied, error.to_string())
        }
        Err(error) => step_result(InitOutcome::Refused, error.to_string()),
    }
}

fn describe_races(report: &ProbeReport) -> String {
    let figures = &report.figures;
    format!(
        "{} races of up to {} writers had one winner each",
        figures.create_rounds + figures.swap_rounds,
        figures.writers_max
    )
}

async fn versioning(
    store: &Store,
    admin: &dyn BucketAdmin,
    runtime: &dyn Runtime,
    options: &InitOptions,
) -> StepResult {
    let now = store.clock.now(runtime.moment());
    let before = match admin.versioning().await {
        Ok(before) => before,
        Err(error) => return failed(error),
    };
    if before == Versioning::On {
        return step_result(InitOutcome::Unchanged, "the bucket keeps versions");
    }
    if !options.versioning {
        let detail = "versioning was not changed; each task carries its own history";
        return step_result(InitOutcome::Skipped, detail);
    }
    match recent_use::recent_use(store, now).await {
        Ok(None) => {}
        Ok(Some(used)) => {
            let detail = format!(
                "versioning was not switched on, because the bucket is in use: {used}; stop all workers, brokers and clients, wait two minutes, and run it again"
            );
            return step_result(InitOutcome::Skipped, detail);
        }
        Err(error) => return failed(error),
    }
    if options.dry_run {
        let detail = "switches versioning on, and back if that breaks conditional writes";
        return step_result(InitOutcome::WouldDo, detail);
    }
    if let Err(error) = admin.set_versioning(Versioning::On).await {
        return failed(error);
    }
    match admin.versioning().await {
        Ok(Versioning::On) => {}
        Ok(_) => {
            let detail = "the store accepted the setting but does not keep versions";
            return step_result(InitOutcome::Unsupported, detail);
        }
        Err(error) => return failed(error),
    }
    let probed = probe::probe(&store.objects, Some(admin), runtime, &options.probe).await;
    let problem = match probed {
        Ok(report) => {
            probe::save_report(&store.objects, runtime, &options.probe, &report).await;
            if report.trusted {
                let detail = format!("the bucket now keeps versions; {}", describe_races(&report));
                return step_result(InitOutcome::Done, detail);
            }
            ProbeError::Untrusted(Box::new(report)).to_string()
        }
        Err(error) => error.to_string(),
    };
    let restored = match admin.set_versioning(before).await {
        Ok(()) => "versioning was switched back; the bucket is usable without it if it passes the probe at the next start".to_owned(),
        Err(error) => format!("versioning COULD NOT be switched back ({error}): do not use this bucket until it is"),
    };
    let written = recent_use::written_meanwhile(store, now).await;
    let detail = format!("with versioning on, {problem} ({restored}){written}");
    step_result(InitOutcome::Refused, detail)
}

async fn cors(admin: &dyn BucketAdmin, options: &InitOptions) -> Result<StepResult, StoreError> {
    if options.cors_origins.is_empty() {
        let detail = "no CORS rule was set, because no origins were given";
        return Ok(step_result(InitOutcome::Skipped, detail));
    }
    let ours = cors_rule(&options.cors_origins);
    let present = admin.cors().await?;
    let origins = options.cors_origins.join(", ");
    if present.iter().any(|rule| is_equivalent(rule, &ours)) {
        let detail = format!("browsers may call the bucket from {origins}");
        return Ok(step_result(InitOutcome::Unchanged, detail));
    }
    if options.dry_run {
        let detail = format!("allows browsers to call the bucket from {origins}");
        return Ok(step_result(InitOutcome::WouldDo, detail));
    }
    // A rule that differs only in its origins was written by an earlier run.
    let mut rules = present.clone();
    rules.retain(|rule| {
        let with_our_origins = CorsRule {
            allowed_origins: ours.allowed_origins.clone(),
            ..rule.clone()
        };
        !is_equivalent(&with_our_origins, &ours)
    });
    rules.push(ours.clone());
    admin.set_cors(&rules).await?;
    if admin
        .cors()
        .await?
        .iter()
        .any(|rule| is_equivalent(rule, &ours))
    {
        let detail = format!("browsers may now call the bucket from {origins}");
        return Ok(step_result(InitOutcome::Done, detail));
    }
    admin.set_cors(&present).await?;
    let detail = "the store accepted the rule but did not keep it; the dashboard needs `qo serve`";
    Ok(step_result(InitOutcome::Unsupported, detail))
}

fn cors_rule(origins: &[String]) -> CorsRule {
    CorsRule {
        allowed_origins: origins.to_vec(),
        allowed_methods: CORS_METHODS.map(str::to_owned).to_vec(),
        allowed_headers: vec!["*".to_owned()],
        expose_headers: CORS_EXPOSED.map(str::to_owned).to_vec(),
        max_age_seconds: CORS_MAX_AGE_SECONDS,
    }
}

/// Whether two rules are equal, ignoring order and case.
fn is_equivalent(one: &CorsRule, other: &CorsRule) -> bool {
    let sorted = |words: &[String]| {
        let mut words: Vec<_> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
        words.sort();
        words
    };
    sorted(&one.allowed_origins) == sorted(&other.allowed_origins)
        && sorted(&one.allowed_methods) == sorted(&other.allowed_methods)
        && sorted(&one.allowed_headers) == sorted(&other.allowed_headers)
        && sorted(&one.expose_headers) == sorted(&other.expose_headers)
        && one.max_age_seconds == other.max_age_seconds
}

async fn lifecycle(
    store: &Store,
    admin: &dyn BucketAdmin,
    options: &InitOptions,
) -> Result<StepResult, StoreError> {
    let ours = lifecycle_rules(store);
    let present = admin.lifecycle().await?;
    if contains_all(&present, &ours) {
        let detail = "old versions of short-lived objects are deleted after a day";
        return Ok(step_result(InitOutcome::Unchanged, detail));
    }
    if options.dry_run {
        let names: Vec<_> = ours.iter().map(|rule| rule.id.as_str()).collect();
        let detail = format!("sets the rules {}", names.join(", "));
        return Ok(step_result(InitOutcome::WouldDo, detail));
    }
    let is_ours = |rule: &LifecycleRule| {
        let mut ours = ours.iter();
        ours.any(|own| {
            own.id == rule.id || (own.prefix == rule.prefix && rule.id.starts_with("qo-"))
        })
    };
    let mut rules: Vec<_> = present
        .iter()
        .filter(|rule| !is_ours(rule))
        .cloned()
        .collect();
    let others = rules.len();
    rules.extend(ours.iter().cloned());
    admin.set_lifecycle(&rules).await?;
    if contains_all(&admin.lifecycle().await?, &rules) {
        let detail = format!(
            "old versions of short-lived objects are now deleted after a day; {others} other rules were kept"
        );
        return Ok(step_result(InitOutcome::Done, detail));
    }
    // A store that understands only part of a rule may delete too much.
    admin.set_lifecycle(&present).await?;
    let detail = "the store accepted the rules but changed them, so the previous rules were restored; if the bucket keeps versions, delete old ones of index, worker and signal objects by other means";
    Ok(step_result(InitOutcome::Unsupported, detail))
}

/// The lifecycle rules that qo sets.
pub(super) fn lifecycle_rules(store: &Store) -> Vec<LifecycleRule> {
    let suffix = prefix_suffix(store);
    let rule = |prefix: &str| LifecycleRule {
        id: format!("qo-{}{suffix}", prefix.trim_end_matches('/')),
        prefix: prefix.to_owned(),
        expire_days: None,
        expire_noncurrent_days: Some(KEPT_DAYS),
        expire_delete_markers: true,
        abort_multipart_days: Some(KEPT_DAYS),
    };
    SHORT_LIVED.map(rule).to_vec()
}

/// A suffix that makes rule ids unique, because several queues can share a bucket under different prefixes.
fn prefix_suffix(store: &Store) -> String {
    let location = store
        .description
        .rsplit_once(" at ")
        .map_or(store.description.as_str(), |(location, _)| location);
    let has_prefix = location
        .split_once("://")
        .is_some_and(|(_, path)| path.contains('/'));
    if !has_prefix {
        return String::new();
    }
    let digest = digest(location.as_bytes()).to_string();
    format!("-{}", &digest[..8])
}

/// Whether all `expected` rules are present.
pub(super) fn contains_all(present: &[LifecycleRule], expected: &[LifecycleRule]) -> bool {
    expected.iter().all(|rule| present.contains(rule))
}

fn failed(error: StoreError) -> StepResult {
    match error {
        StoreError::Unsupported { .. } => step_result(InitOutcome::Unsupported, error.to_string()),
        error => step_result(InitOutcome::Refused, error.to_string()),
    }
}
