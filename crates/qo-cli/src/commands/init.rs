//! `qo init`.

use qo::InitOptions;
use qo_direct::{InitOutcome, allows_no_versioning};

use crate::args::InitArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::style::{CYAN, DIM, GREEN, RED, YELLOW};
use crate::output::table::{Cell, Table};
use crate::session::Session;

pub(super) async fn run(args: &InitArgs, session: &mut Session) -> Result<(), Failure> {
    let leaves_versioning = args.no_versioning
        || allows_no_versioning(&session.environment.variables).map_err(qo::Error::from)?;
    let store = session.open_store()?;
    let mut options = InitOptions::default();
    options.versioning = !leaves_versioning;
    options.cors_origins = if args.no_cors {
        Vec::new()
    } else {
        args.cors_origin.clone()
    };
    options.dry_run = args.dry_run;
    if let Some(budget) = args.probe_budget {
        options.probe.budget = budget;
    }
    let report = qo::init(&store, session.runtime.as_ref(), &options).await;
    let screen = &mut session.screen;
    if screen.json {
        screen.json(&report)?;
    } else {
        screen.line(&report.store)?;
        let mut table = Table::new()
            .column("STEP")
            .column("OUTCOME")
            .column("DETAIL");
        for step in &report.steps {
            let (outcome, style) = match step.outcome {
                InitOutcome::Done => ("done", GREEN),
                InitOutcome::Unchanged => ("unchanged", DIM),
                InitOutcome::WouldDo => ("would do", YELLOW),
                InitOutcome::Skipped => ("skipped", DIM),
                InitOutcome::Unsupported => ("unsupported", YELLOW),
                InitOutcome::Refused => ("refused", RED),
            };
            table.row(vec![
                step.name.into(),
                Cell::styled(outcome, style),
                step.detail.as_str().into(),
            ]);
        }
        // The details are sentences and are never truncated.
        let text = table.render(screen.paint, None);
        screen.write(&text)?;
    }
    if report.is_ready() {
        if args.ui {
            let deployed = qo_ui::deploy(&store, false).await;
            return super::ui::print_report(
                &deployed.map_err(|error| super::ui::explain(&error))?,
                session,
            );
        }
        if args.dry_run {
            screen.note("Nothing was changed.");
        } else {
            let next = screen.paint_notes.paint(CYAN, "qo doctor");
            screen.note(format_args!("The store is ready. Run {next} to check it."));
        }
        return Ok(());
    }
    // An unusable store has a more specific failure, with its own exit code and hint.
    qo_store::check(&store).await.map_err(qo::Error::from)?;
    let refused = report
        .steps
        .iter()
        .find(|step| step.outcome == InitOutcome::Refused);
    let detail = refused.map_or(String::new(), |step| {
        format!(": {}: {}", step.name, step.detail)
    });
    Err(Failure::new(
        FailureKind::Unsupported,
        format!("the store is not ready{detail}"),
    ))
}
