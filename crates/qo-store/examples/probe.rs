//! Checks whether a store is safe for a queue: opens it, checks that it is usable, and races conditional writes in
//! it. It removes everything that it writes.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use object_store::ObjectStore;
use qo_store::probe::{Check, CheckOutcome, ProbeError, ProbeOptions, ProbeReport, probe};
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::wrap::{FaultKind, FaultPlan, FaultStore};
use qo_store::{OpenOptions, Store, StoreSource, check, open, open_default};

const HELP: &str = "\
Checks whether a store is safe for a queue.

Usage: cargo run --release --example probe -- [URL] [--json] [--fault KIND]

  URL            memory:, sqlite:PATH, s3://BUCKET[/PREFIX], gs://BUCKET[/PREFIX] or az://CONTAINER[/PREFIX].
                 Without one: the URL in QO_STORE, else the bucket in S3_BUCKET, else an SQLite file in your data directory
  --json         print the report as JSON
  --fault KIND   inject a fault, to see what the probe reports: ignored-condition, non-atomic-condition, ...

Exits with 0 if the store can be trusted, 1 if it cannot, 2 if that could not be determined.
";

const TRUSTED: u8 = 0;
const UNTRUSTED: u8 = 1;
const UNKNOWN: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let code = match Arguments::parse(std::env::args().skip(1)) {
        Ok(None) => {
            print(HELP);
            Ok(TRUSTED)
        }
        Ok(Some(arguments)) => run(&arguments).await,
        Err(mistake) => Err(mistake),
    };
    code.unwrap_or_else(|error| {
        eprintln!("probe: {error}");
        UNKNOWN
    })
    .into()
}

/// The command line.
#[derive(Default)]
struct Arguments {
    url: Option<String>,
    is_json: bool,
    fault: Option<FaultKind>,
}

impl Arguments {
    /// `None` if help was requested. An error is one line that says what to do.
    fn parse(mut given: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut arguments = Self::default();
        while let Some(argument) = given.next() {
            match argument.as_str() {
                "--help" | "-h" => return Ok(None),
                "--json" => arguments.is_json = true,
                "--fault" => arguments.fault = Some(fault(given.next())?),
                option if option.starts_with('-') => {
                    return Err(format!("unknown option {option}: see --help"));
                }
                _ if arguments.url.is_some() => {
                    return Err("more than one store was given: give only one".to_owned());
                }
                _ => arguments.url = Some(argument),
            }
        }
        Ok(Some(arguments))
    }
}

fn fault(name: Option<String>) -> Result<FaultKind, String> {
    let name_of = |kind: &FaultKind| kind.to_string();
    let name = name.unwrap_or_default();
    let known = FaultKind::OF_STORES
        .iter()
        .copied()
        .find(|kind| name_of(kind) == name);
    known.ok_or_else(|| {
        let names: Vec<_> = FaultKind::OF_STORES.iter().map(name_of).collect();
        format!("--fault needs one of {}", names.join(", "))
    })
}

async fn run(arguments: &Arguments) -> Result<u8, String> {
    let runtime = TokioRuntime::shared();
    let options = OpenOptions::from_env(Arc::clone(&runtime));
    let opened = match &arguments.url {
        Some(url) => open(url, &options),
        None => open_default(&options),
    };
    let store = opened.map_err(|error| error.to_string())?;
    let paint = Paint::for_stdout();
    if !arguments.is_json {
        print(&heading(&store, paint));
    } else if let StoreSource::DataDirectory(path) = &store.source {
        eprintln!("probe: no store was given: using {}", path.display());
    }
    check(&store, runtime.as_ref())
        .await
        .map_err(|error| error.to_string())?;

    let report = run_probe(&store, arguments.fault, &runtime).await?;
    if arguments.is_json {
        let json = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
        print(&format!("{json}\n"));
    } else {
        print(&render(&report, paint));
    }
    Ok(if report.trusted { TRUSTED } else { UNTRUSTED })
}

async fn run_probe(
    store: &Store,
    fault: Option<FaultKind>,
    runtime: &Arc<dyn Runtime>,
) -> Result<ProbeReport, String> {
    let objects: Arc<dyn ObjectStore> = match fault {
        None => Arc::clone(&store.objects),
        Some(kind) => Arc::new(FaultStore::new(
            Arc::clone(&store.objects),
            Arc::clone(runtime),
            FaultPlan::always(kind),
            0,
        )),
    };
    let admin = store.admin.as_deref();
    probe(&objects, admin, runtime.as_ref(), &ProbeOptions::default())
        .await
        .map_err(|error| format!("{}: {error}", store.description.trim_end_matches(':')))
}

/// What is known before the probe, which can take ten seconds.
fn heading(store: &Store, paint: Paint) -> String {
    let source = match &store.source {
        StoreSource::Url => "",
        StoreSource::QoStore => " (from QO_STORE)",
        StoreSource::S3Bucket => " (from S3_BUCKET)",
        StoreSource::DataDirectory(_) => " (the default, since no store was given)",
    };
    let rows = [
        ("store", format!("{}{source}", store.description)),
        ("credentials", store.credentials.to_string()),
    ];
    let mut text = String::new();
    for (name, value) in rows {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "{}{value}", paint.bold(&format!("{name:<13}")));
    }
    text
}

fn render(report: &ProbeReport, paint: Paint) -> String {
    let figures = &report.figures;
    let versioning = format!("{:?}", report.versioning).to_lowercase();
    let mut text = format!("{}{versioning}\n\n", paint.bold("versioning   "));
    let width = |cell: fn(&Check) -> usize| report.checks.iter().map(cell).max().unwrap_or(0);
    let name_width = width(|check| check.name.name().len());
    for check in &report.checks {
        let (word, code) = match check.outcome {
            CheckOutcome::Passed => ("ok", GREEN),
            CheckOutcome::Failed if check.required => ("FAILED", RED),
            CheckOutcome::Failed => ("missing", YELLOW),
            CheckOutcome::Skipped => ("skipped", YELLOW),
        };
        let word = paint.with(code, &format!("{word:<8}"));
        let _ = writeln!(
            text,
            "  {word} {:<name_width$}  {}",
            check.name, check.reason
        );
    }
    let _ = writeln!(
        text,
        "\n{} creates and {} swaps of up to {} writers raced; {} requests in {} ms",
        figures.create_rounds,
        figures.swap_rounds,
        figures.writers_max,
        figures.requests,
        figures.duration_ms
    );
    if report.trusted {
        let _ = writeln!(text, "{}", paint.with(GREEN, "This store can be trusted."));
    } else {
        let refusal = ProbeError::Untrusted(Box::new(report.clone()));
        let _ = writeln!(text, "{}", paint.with(RED, "This store cannot be trusted:"));
        let _ = writeln!(text, "{refusal}");
    }
    text
}

/// Prints to standard output. A closed pipe (`| head`) is not an error.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

const BOLD: &str = "1";
const RED: &str = "1;31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

/// Colours: only on a terminal, and never if `NO_COLOR` is set.
#[derive(Clone, Copy)]
struct Paint {
    is_on: bool,
}

impl Paint {
    fn for_stdout() -> Self {
        let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            is_on: io::stdout().is_terminal() && !is_refused,
        }
    }

    fn bold(self, text: &str) -> String {
        self.with(BOLD, text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.is_on {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
