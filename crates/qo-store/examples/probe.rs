//! Shows whether a store can be trusted with a queue: opens it, asks it whether it can be used at all, and races
//! conditional writes in it. Everything that it writes it removes again.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use object_store::ObjectStore;
use qo_store::probe::{Check, Outcome, ProbeError, ProbeOptions, Verdict, probe};
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::wrap::{FaultKind, FaultPlan, FaultStore};
use qo_store::{OpenOptions, Store, StoreSource, check, open, open_default};

const HELP: &str = "\
Shows whether a store can be trusted with a queue.

Usage: cargo run --release --example probe -- [URL] [--json] [--fault KIND]

  URL            memory:, sqlite:PATH, s3://BUCKET[/PREFIX], gs://BUCKET[/PREFIX] or az://CONTAINER[/PREFIX].
                 Without one: the URL in QO_STORE, else the bucket in S3_BUCKET, else an SQLite file in your data directory
  --json         print the verdict as JSON
  --fault KIND   break the store on purpose, to see what the probe says: ignored-condition, non-atomic-condition, ...

Ends with 0 if the store can be trusted, 1 if it cannot, 2 if that could not be found out.
";

const TRUSTED: u8 = 0;
const UNTRUSTED: u8 = 1;
const UNKNOWN: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let code = match Arguments::parse(std::env::args().skip(1)) {
        Ok(None) => {
            say(HELP);
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

/// What was asked for.
#[derive(Default)]
struct Arguments {
    url: Option<String>,
    is_json: bool,
    fault: Option<FaultKind>,
}

impl Arguments {
    /// Nothing, if help was asked for. A mistake is one line that says what to do.
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
                    return Err("more than one store was given: name one".to_owned());
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
        .into_iter()
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
        say(&heading(&store, paint));
    } else if let StoreSource::DataDirectory(path) = &store.source {
        eprintln!("probe: no store was given: this is {}", path.display());
    }
    check(&store).await.map_err(|error| error.to_string())?;

    let verdict = judge(&store, arguments.fault, &runtime).await?;
    if arguments.is_json {
        let json = serde_json::to_string_pretty(&verdict).map_err(|error| error.to_string())?;
        say(&format!("{json}\n"));
    } else {
        say(&report(&verdict, paint));
    }
    Ok(if verdict.trusted { TRUSTED } else { UNTRUSTED })
}

async fn judge(
    store: &Store,
    fault: Option<FaultKind>,
    runtime: &Arc<dyn Runtime>,
) -> Result<Verdict, String> {
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
        // Writing into a string cannot fail, here and below.
        let _ = writeln!(text, "{}{value}", paint.bold(&format!("{name:<13}")));
    }
    text
}

fn report(verdict: &Verdict, paint: Paint) -> String {
    let figures = &verdict.figures;
    let versioning = format!("{:?}", verdict.versioning).to_lowercase();
    let mut text = format!("{}{versioning}\n\n", paint.bold("versioning   "));
    let width = |cell: fn(&Check) -> usize| verdict.checks.iter().map(cell).max().unwrap_or(0);
    let name_width = width(|check| check.name.name().len());
    for check in &verdict.checks {
        let (word, code) = match check.outcome {
            Outcome::Passed => ("ok", GREEN),
            Outcome::Failed if check.required => ("FAILED", RED),
            Outcome::Failed => ("lacking", YELLOW),
            Outcome::Skipped => ("skipped", YELLOW),
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
    if verdict.trusted {
        let _ = writeln!(text, "{}", paint.with(GREEN, "This store can be trusted."));
    } else {
        let refusal = ProbeError::Untrusted(Box::new(verdict.clone()));
        let _ = writeln!(text, "{}", paint.with(RED, "This store cannot be trusted:"));
        let _ = writeln!(text, "{refusal}");
    }
    text
}

/// Prints. Whoever reads may have gone (`| head`), which is no reason to fail.
fn say(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

const BOLD: &str = "1";
const RED: &str = "1;31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

/// Colours: on a terminal only, and never where `NO_COLOR` is set.
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
