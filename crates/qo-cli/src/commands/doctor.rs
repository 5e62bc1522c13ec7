//! `qo doctor`.

use std::sync::Arc;

use qo::DoctorOptions;
use qo_direct::Health;
use qo_store::StoreClient;
use qo_store::client::ClientConfig;

use crate::args::DoctorArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::style::{CYAN, DIM, GREEN, RED, YELLOW};
use crate::session::Session;

pub(super) async fn run(args: &DoctorArgs, session: &mut Session) -> Result<(), Failure> {
    let store = session.open_store()?;
    let client = StoreClient::new(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        Arc::clone(&session.runtime),
        ClientConfig::default(),
    );
    let mut options = DoctorOptions::default();
    options.time_max = args.time;
    options.rescue = args.rescue;
    if let Some(budget) = args.probe_budget {
        options.probe.budget = budget;
    }
    let report = qo::doctor(&store, &client, session.runtime.as_ref(), &options).await;
    let screen = &mut session.screen;
    if screen.json {
        screen.json(&report)?;
    } else {
        let origin = &session.settings.store.origin;
        screen.line(format_args!(
            "{} (from {origin}, with {})\n",
            report.store, report.credentials
        ))?;
        for check in &report.checks {
            let (word, style) = match check.health {
                Health::Ok => ("ok", GREEN),
                Health::Skipped => ("skipped", DIM),
                Health::Warning => ("warning", YELLOW),
                Health::Failed => ("failed", RED),
            };
            let word = screen.paint.paint(style, &format!("{word:<8}"));
            screen.line(format_args!("{word} {:<12} {}", check.name, check.summary))?;
            if let Some(hint) = &check.hint {
                let hint = screen.paint.paint(CYAN, &format!("→ {hint}"));
                screen.line(format_args!("{:22}{hint}", ""))?;
            }
        }
    }
    let health = report.health();
    let is_bad = health == Health::Failed || (args.strict && health == Health::Warning);
    if !is_bad {
        return Ok(());
    }
    // An unusable store has a more specific failure, with its own exit code and hint.
    qo_store::check(&store, session.runtime.as_ref())
        .await
        .map_err(qo::Error::from)?;
    let failed: Vec<&str> = report
        .checks
        .iter()
        .filter(|check| {
            check.health == Health::Failed || (args.strict && check.health == Health::Warning)
        })
        .map(|check| check.name)
        .collect();
    Err(Failure::new(
        FailureKind::Unsupported,
        format!("failed checks: {}", failed.join(", ")),
    ))
}
