//! The command line.

use std::time::Duration;

use qo_sim::cluster;
use qo_sim::faults::{FaultKind, SIMULATED};
use qo_sim::plan::Plan;
use qo_sim::subject;

/// What to run, and on which engine. All engines if none is named.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Invocation {
    pub(crate) engine: Option<&'static str>,
    pub(crate) what: What,
}

/// What to run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    /// Print the help.
    Help,
    /// One run with a full report.
    One {
        plan: Box<Plan>,
        /// The planted bug to switch on.
        mutant: Option<String>,
        traces: bool,
    },
    /// Many seeds.
    Many {
        from: u64,
        until: Until,
        /// Whether to print the figures as JSON.
        json: bool,
    },
    /// The hunt for a planted bug, beginning with the seed that found it before.
    Hunt { mutant: String, known: Option<u64> },
}

/// When to stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Until {
    Seeds(u64),
    Time(Duration),
}

pub(crate) const HELP: &str = "\
Runs the simulator: production engines on a simulated store, in virtual time, under faults that a seed decides.

Usage: cargo xtask sim [--engine NAME] [--seeds N | --hours N] [--from SEED] [--json]
       cargo xtask sim [--engine NAME] --seed SEED [--trace] [--mutant NAME] [--without KINDS] [--only FAULTS]
                       [--tasks N] [--workers N] [--clients N] [--trust-first-refusal true|false]
       cargo xtask sim [--engine NAME] --mutants
       cargo xtask sim [--engine NAME] --mutant NAME

  --engine NAME    direct, json, slate or cluster. Without it each seed runs on the first three, and --seed on direct.
                   cluster has faults of its own, which cannot be changed, and --seeds runs it by `cargo test -p qo-sim --test it cluster`
  --seeds N        the number of seeds (default: 1,000)
  --hours N        the duration; fractions are allowed
  --json           print the final figures as JSON; progress and failures go to standard error
  --from SEED      the first seed (default: 0)
  --seed SEED      run one seed; if it fails, shrink it and print a full report
  --trace          print the trace even if the run does not fail
  --mutants        hunt for every planted bug, and print a table of the seeds that found them
  --mutant NAME    hunt for one planted bug, or plant it into the run of --seed
  --without KINDS  leave out kinds of faults: lost-response,crash
  --only FAULTS    inject only these faults, as a failure names them
  --trust-first-refusal true|false
                   whether clients treat a refusal of the first try as final, as they do by default outside the simulator
";

/// Reads the command line, without the program's name.
pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Invocation, String> {
    let mut words = words.into_iter();
    let (mut seed, mut seeds, mut hours, mut from) = (None, None, None, 0);
    let (mut mutant, mut known, mut traces) = (None, None, false);
    let (mut engine, mut json) = (None, false);
    let mut changes: Vec<Change> = Vec::new();
    while let Some(word) = words.next() {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word, None),
        };
        match name.as_str() {
            "--help" | "-h" | "help" => {
                let what = What::Help;
                return Ok(Invocation { engine, what });
            }
            "--json" => json = true,
            "--trace" => traces = true,
            "--mutants" => return Err("`--mutants` needs `cargo xtask sim`".to_owned()),
            _ => {
                let value = inline
                    .or_else(|| words.next())
                    .ok_or_else(|| format!("`{name}` needs a value"))?;
                match name.as_str() {
                    "--engine" => engine = Some(engine_of(&value)?),
                    "--seed" => seed = Some(number(&name, &value)?),
                    "--seeds" => seeds = Some(number(&name, &value)?),
                    "--from" => from = number(&name, &value)?,
                    "--hours" => hours = Some(hours_of(&value)?),
                    "--mutant" => mutant = Some(value),
                    // `cargo xtask` passes the seed that found the bug before.
                    "--known" => known = Some(number(&name, &value)?),
                    "--without" => changes.push(Change::Without(kinds(&value)?)),
                    "--only" => changes.push(Change::Only(value)),
                    "--trust-first-refusal" => {
                        changes.push(Change::TrustFirstRefusal(truth(&name, &value)?));
                    }
                    "--tasks" => changes.push(Change::Tasks(number(&name, &value)?)),
                    "--workers" => changes.push(Change::Workers(number(&name, &value)?)),
                    "--clients" => changes.push(Change::Clients(number(&name, &value)?)),
                    _ => return Err(format!("there is no option `{name}`; see --help")),
                }
            }
        }
    }
    if json && (seed.is_some() || mutant.is_some()) {
        return Err("`--json` is for --seeds and --hours".to_owned());
    }
    let what = match (seed, seeds, hours) {
        (Some(seed), None, None) => {
            let mut plan = Plan::of(seed);
            for change in changes {
                change.apply(&mut plan);
            }
            What::One {
                plan: Box::new(plan),
                mutant,
                traces,
            }
        }
        _ if !changes.is_empty() => {
            return Err("a changed plan needs --seed, and that alone".to_owned());
        }
        (None, None, None) if mutant.is_some() => What::Hunt {
            mutant: mutant.unwrap_or_default(),
            known,
        },
        (None, seeds, None) => What::Many {
            from,
            until: Until::Seeds(seeds.unwrap_or(1_000)),
            json,
        },
        (None, None, Some(time)) => What::Many {
            from,
            until: Until::Time(time),
            json,
        },
        _ => return Err("one of --seed, --seeds and --hours is enough".to_owned()),
    };
    Ok(Invocation { engine, what })
}

fn engine_of(name: &str) -> Result<&'static str, String> {
    let all = subject::all();
    let mut names = (all.iter().map(|subject| subject.name())).chain([cluster::NAME]);
    if let Some(known) = names.clone().find(|known| *known == name) {
        return Ok(known);
    }
    let first = names.next().unwrap_or_default().to_owned();
    let names = names.fold(first, |list, name| list + ", " + name);
    Err(format!("there is no engine {name:?}; there are {names}"))
}

/// A change of a seed's plan.
enum Change {
    Without(Vec<FaultKind>),
    Only(String),
    TrustFirstRefusal(bool),
    Tasks(u64),
    Workers(u64),
    Clients(u64),
}

impl Change {
    fn apply(self, plan: &mut Plan) {
        match self {
            Self::Without(kinds) => {
                for kind in kinds {
                    plan.faults.remove(&kind);
                }
            }
            Self::Only(ids) => {
                let ids = ids.split(',').filter(|id| !id.is_empty());
                plan.only = Some(ids.map(str::to_owned).collect());
            }
            Self::TrustFirstRefusal(trust) => plan.trust_first_refusal = trust,
            Self::Tasks(count) => plan.tasks = count,
            Self::Workers(count) => plan.workers = count,
            Self::Clients(count) => plan.clients = count,
        }
    }
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value
        .parse()
        .map_err(|_| format!("`{name}` needs a whole number, not {value:?}"))
}

fn truth(name: &str, value: &str) -> Result<bool, String> {
    value
        .parse()
        .map_err(|_| format!("`{name}` needs true or false, not {value:?}"))
}

fn hours_of(value: &str) -> Result<Duration, String> {
    let hours: f64 = value
        .parse()
        .ok()
        .filter(|hours| (0.0..=10_000.0).contains(hours))
        .ok_or_else(|| format!("`--hours` needs a number from 0 to 10000, not {value:?}"))?;
    Ok(Duration::from_secs_f64(hours * 3_600.0))
}

fn kinds(value: &str) -> Result<Vec<FaultKind>, String> {
    value
        .split(',')
        .map(|name| {
            let known = FaultKind::from_name(name).filter(|kind| SIMULATED.contains(kind));
            known.ok_or_else(|| {
                let names = SIMULATED.map(FaultKind::name).join(", ");
                format!("there is no kind of fault {name:?}; there are {names}")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Invocation, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_failure_can_be_run_again_by_the_command_that_it_prints() {
        let mut plan = Plan::of(17);
        let kind = *plan.faults.keys().next().unwrap();
        plan.faults.remove(&kind);
        plan.only = Some(["w1.2#3".to_owned(), "c1.1!crash".to_owned()].into());
        plan.tasks = 2;
        plan.trust_first_refusal = !plan.trust_first_refusal;
        let line = qo_sim::campaign::command(&plan, "json", Some("no-sweeper"));
        let line = line.replace('\'', "");
        let line = line.strip_prefix("cargo xtask sim ").unwrap();
        assert_eq!(
            parsed(line).unwrap(),
            Invocation {
                engine: Some("json"),
                what: What::One {
                    plan: Box::new(plan),
                    mutant: Some("no-sweeper".to_owned()),
                    traces: false
                }
            }
        );
    }

    #[test]
    fn campaigns_end_with_seeds_or_time() {
        let many = |from, until| {
            let json = false;
            let what = What::Many { from, until, json };
            Ok(Invocation { engine: None, what })
        };
        assert_eq!(parsed(""), many(0, Until::Seeds(1_000)));
        assert_eq!(parsed("--seeds=5 --from 9"), many(9, Until::Seeds(5)));
        let half = Until::Time(Duration::from_mins(30));
        assert_eq!(parsed("--hours 0.5"), many(0, half));
    }

    #[test]
    fn a_hunt_may_begin_with_a_known_seed() {
        let hunt = |known| What::Hunt {
            mutant: "no-sweeper".to_owned(),
            known,
        };
        let parsed = |line: &str| parsed(line).unwrap();
        assert_eq!(parsed("--mutant no-sweeper").what, hunt(None));
        let with_seed = parsed("--engine=json --mutant no-sweeper --known 7");
        assert_eq!(with_seed.what, hunt(Some(7)));
        assert_eq!(with_seed.engine, Some("json"));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, named) in [
            ("--sed 1", "--sed"),
            ("--seed", "needs a value"),
            ("--seed x", "whole number"),
            ("--seed 1 --trust-first-refusal x", "true or false"),
            ("--seed 1 --seeds 2", "enough"),
            ("--hours -1", "0 to 10000"),
            ("--tasks 3", "needs --seed"),
            ("--seed 1 --without rain", "rain"),
            ("--mutants", "xtask"),
            ("--engine rain", "direct, json"),
            ("--seed 1 --json", "--json"),
        ] {
            let message = parsed(line).unwrap_err();
            assert!(message.contains(named), "{line}: {message}");
        }
    }
}
