//! Prepares a bucket: trust, versions, CORS for the dashboard, and lifecycle rules for what qo writes over and over.
//!
//! Each step looks first and changes only what is not so yet, so that a second run changes nothing, and a crash between two
//! steps is mended by running it again. Run it before workers are: switching versioning on changes how a store behaves.
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | the bucket is probed as it is | nothing |
//! | 2 | versioning is switched on | a bucket that nobody has probed with versions: whoever starts next does, and refuses it if need be |
//! | 3 | the bucket is probed **again**, because some stores are right without versions and wrong with them (Ceph RGW 20 is); if it fails, versioning is switched back | nothing |
//! | 4 | CORS and lifecycle rules are written beside those of others | nothing |

use std::fmt;

use qo_store::admin::{BucketAdmin, CorsRule, LifecycleRule, Versioning};
use qo_store::probe::{self, ProbeError, ProbeOptions, ProbeReport};
use qo_store::runtime::Runtime;
use qo_store::{Store, StoreError};
use serde::Serialize;

use qo_engine::payload::digest;

/// What a dashboard in a browser does with objects.
const CORS_METHODS: [&str; 5] = ["GET", "PUT", "HEAD", "DELETE", "POST"];
/// What it reads of the answers beside their bodies: compare-and-swap, versions, and the store's time.
const CORS_EXPOSED: [&str; 3] = ["ETag", "x-amz-version-id", "Date"];
const CORS_MAX_AGE_SECONDS: u32 = 3_600;
/// Prefixes whose objects are written over and over, or deleted soon. Their old versions are of no use to anybody.
const SHORT_LIVED: [&str; 6] = ["ready", "later", "leases", "workers", "meta", "probe"];
/// How long replaced versions and unfinished uploads of those are kept: as short as S3 can.
const KEPT_DAYS: u32 = 1;

/// What to prepare.
#[derive(Debug, Clone)]
pub struct InitOptions {
    /// Whether to switch versioning on. Versions are a second, complete history beside the tasks' own.
    pub versioning: bool,
    /// From where browsers may call the bucket, such as `https://qo.example.org`, or `*`. Nothing is set if empty.
    pub cors_origins: Vec<String>,
    /// Only say what would be done.
    pub dry_run: bool,
    /// How much the probe may do.
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

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InitOutcome {
    /// It was not so, and is now.
    Done,
    /// It was so before.
    AlreadySo,
    /// It is not so, and would be made so without `dry_run`.
    WouldDo,
    /// The options say not to.
    NotAsked,
    /// This store cannot.
    Unsupported,
    /// It was tried and is not so.
    Refused,
}

/// One step of the preparation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InitStep {
    /// `reachable`, `trusted`, `versioning`, `cors` or `lifecycle`.
    pub name: &'static str,
    /// How it ended.
    pub outcome: InitOutcome,
    /// What was found or done, or why not, in a sentence.
    pub detail: String,
}

/// What came of the preparation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InitReport {
    /// Which store: safe to print.
    pub store: String,
    /// In the order in which they were made.
    pub steps: Vec<InitStep>,
}

impl InitReport {
    /// Whether the bucket can be used: no step was refused. What a store cannot do, qo does without.
    pub fn is_ready(&self) -> bool {
        let mut steps = self.steps.iter();
        steps.all(|step| step.outcome != InitOutcome::Refused)
    }

    fn add(&mut self, name: &'static str, (outcome, detail): Ended) {
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
                InitOutcome::AlreadySo => "already so",
                InitOutcome::WouldDo => "would do",
                InitOutcome::NotAsked => "not asked",
                InitOutcome::Unsupported => "unsupported",
                InitOutcome::Refused => "REFUSED",
            };
            writeln!(f, "  {outcome:<12} {:<11} {}", step.name, step.detail)?;
        }
        Ok(())
    }
}

/// How a step ended, and what there is to say about it.
type Ended = (InitOutcome, String);

fn ended(outcome: InitOutcome, detail: impl Into<String>) -> Ended {
    (outcome, detail.into())
}

/// Prepares a bucket. It ends early, with a refused step, where the bucket cannot be used at all.
pub async fn init(store: &Store, runtime: &dyn Runtime, options: &InitOptions) -> InitReport {
    let mut report = InitReport {
        store: store.description.clone(),
        steps: Vec::new(),
    };
    if let Err(error) = qo_store::check(store).await {
        report.add("reachable", ended(InitOutcome::Refused, error.to_string()));
        return report;
    }
    let reached = ended(InitOutcome::AlreadySo, "the store answers");
    report.add("reachable", reached);

    let trusted = trust(store, runtime, options).await;
    let is_trusted = trusted.0 != InitOutcome::Refused;
    report.add("trusted", trusted);
    if !is_trusted {
        return report;
    }
    let Some(admin) = store.admin.as_deref() else {
        let why = "qo cannot change the settings of this kind of store; it works without";
        for name in ["versioning", "cors", "lifecycle"] {
            report.add(name, ended(InitOutcome::Unsupported, why));
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

/// The bucket as it is now must be trusted before anything is changed about it.
async fn trust(store: &Store, runtime: &dyn Runtime, options: &InitOptions) -> Ended {
    let remembered = probe::load_report(&store.objects, runtime, &options.probe).await;
    let was_trusted = matches!(&remembered, Ok(Some(verdict)) if verdict.trusted);
    if options.dry_run {
        return if was_trusted {
            ended(
                InitOutcome::AlreadySo,
                "an earlier probe trusted the bucket",
            )
        } else {
            ended(
                InitOutcome::WouldDo,
                "races conditional writes in the bucket",
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
        Ok(verdict) => {
            let outcome = if was_trusted {
                InitOutcome::AlreadySo
            } else {
                InitOutcome::Done
            };
            ended(outcome, races(&verdict))
        }
        Err(error) => ended(InitOutcome::Refused, error.to_string()),
    }
}

fn races(verdict: &ProbeReport) -> String {
    let figures = &verdict.figures;
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
) -> Ended {
    let before = match admin.versioning().await {
        Ok(before) => before,
        Err(error) => return failed(error),
    };
    if before == Versioning::On {
        return ended(InitOutcome::AlreadySo, "the bucket keeps versions");
    }
    if !options.versioning {
        let detail = "versioning was left as it is; tasks carry their own history";
        return ended(InitOutcome::NotAsked, detail);
    }
    if options.dry_run {
        let detail = "switches versioning on, and back if the store then breaks conditional writes";
        return ended(InitOutcome::WouldDo, detail);
    }
    if let Err(error) = admin.set_versioning(Versioning::On).await {
        return failed(error);
    }
    match admin.versioning().await {
        Ok(Versioning::On) => {}
        Ok(_) => {
            let detail = "the store accepted to keep versions and does not";
            return ended(InitOutcome::Unsupported, detail);
        }
        Err(error) => return failed(error),
    }
    let probed = probe::probe(&store.objects, Some(admin), runtime, &options.probe).await;
    let problem = match probed {
        Ok(verdict) => {
            probe::save_report(&store.objects, runtime, &options.probe, &verdict).await;
            if verdict.trusted {
                let detail = format!("the bucket keeps versions from now on; {}", races(&verdict));
                return ended(InitOutcome::Done, detail);
            }
            ProbeError::Untrusted(Box::new(verdict)).to_string()
        }
        Err(error) => error.to_string(),
    };
    let restored = match admin.set_versioning(before).await {
        Ok(()) => "versioning was switched back, and the bucket can be used without it if the next start trusts it".to_owned(),
        Err(error) => format!("versioning COULD NOT be switched back ({error}): do not use this bucket until it is"),
    };
    let detail = format!("with versions on, {problem} ({restored})");
    ended(InitOutcome::Refused, detail)
}

async fn cors(admin: &dyn BucketAdmin, options: &InitOptions) -> Result<Ended, StoreError> {
    if options.cors_origins.is_empty() {
        let detail = "no origins were given, so no CORS rule was set";
        return Ok(ended(InitOutcome::NotAsked, detail));
    }
    let ours = cors_rule(&options.cors_origins);
    let present = admin.cors().await?;
    let origins = options.cors_origins.join(", ");
    if present.iter().any(|rule| is_same(rule, &ours)) {
        let detail = format!("browsers may call the bucket from {origins}");
        return Ok(ended(InitOutcome::AlreadySo, detail));
    }
    if options.dry_run {
        let detail = format!("lets browsers call the bucket from {origins}");
        return Ok(ended(InitOutcome::WouldDo, detail));
    }
    // A rule like ours with other origins is ours from an earlier time.
    let mut rules = present.clone();
    rules.retain(|rule| {
        let with_our_origins = CorsRule {
            allowed_origins: ours.allowed_origins.clone(),
            ..rule.clone()
        };
        !is_same(&with_our_origins, &ours)
    });
    rules.push(ours.clone());
    admin.set_cors(&rules).await?;
    if admin.cors().await?.iter().any(|rule| is_same(rule, &ours)) {
        let detail = format!("browsers may call the bucket from {origins} from now on");
        return Ok(ended(InitOutcome::Done, detail));
    }
    admin.set_cors(&present).await?;
    let detail =
        "the store accepted the rule and does not keep it; a dashboard needs a server beside it";
    Ok(ended(InitOutcome::Unsupported, detail))
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

/// Whether two rules say the same, in whatever order and case.
fn is_same(one: &CorsRule, other: &CorsRule) -> bool {
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
) -> Result<Ended, StoreError> {
    let ours = lifecycle_rules(store);
    let present = admin.lifecycle().await?;
    if holds_all(&present, &ours) {
        let detail = "old versions of index, worker and signal objects go after a day";
        return Ok(ended(InitOutcome::AlreadySo, detail));
    }
    if options.dry_run {
        let names: Vec<_> = ours.iter().map(|rule| rule.id.as_str()).collect();
        let detail = format!("sets the rules {}", names.join(", "));
        return Ok(ended(InitOutcome::WouldDo, detail));
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
    if holds_all(&admin.lifecycle().await?, &rules) {
        let detail = format!(
            "old versions of index, worker and signal objects go after a day from now on; {others} other rules were kept"
        );
        return Ok(ended(InitOutcome::Done, detail));
    }
    // Rules that a store understands only in part may remove more than was asked for.
    admin.set_lifecycle(&present).await?;
    let detail = "the store accepted the rules and does not keep them as they are, so they were taken back; where versions are kept, remove old ones of index, worker and signal objects by other means";
    Ok(ended(InitOutcome::Unsupported, detail))
}

/// The rules that a store should have.
pub(super) fn lifecycle_rules(store: &Store) -> Vec<LifecycleRule> {
    let suffix = prefix_suffix(store);
    let rule = |area: &str| LifecycleRule {
        id: format!("qo-{area}{suffix}"),
        prefix: format!("{area}/"),
        expire_days: None,
        expire_noncurrent_days: Some(KEPT_DAYS),
        expire_delete_markers: true,
        abort_multipart_days: Some(KEPT_DAYS),
    };
    SHORT_LIVED.map(rule).to_vec()
}

/// Tells the queues of one bucket apart that live under different prefixes: a rule's name is unique in its bucket.
fn prefix_suffix(store: &Store) -> String {
    let place = store
        .description
        .rsplit_once(" at ")
        .map_or(store.description.as_str(), |(place, _)| place);
    let has_prefix = place
        .split_once("://")
        .is_some_and(|(_, path)| path.contains('/'));
    if !has_prefix {
        return String::new();
    }
    let digest = digest(place.as_bytes()).to_string();
    format!("-{}", &digest[..8])
}

pub(super) fn holds_all(present: &[LifecycleRule], wanted: &[LifecycleRule]) -> bool {
    wanted.iter().all(|rule| present.contains(rule))
}

fn failed(error: StoreError) -> Ended {
    match error {
        StoreError::Unsupported { .. } => ended(InitOutcome::Unsupported, error.to_string()),
        error => ended(InitOutcome::Refused, error.to_string()),
    }
}
