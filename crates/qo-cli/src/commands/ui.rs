//! `qo ui deploy` and `qo ui link`.

use qo_store::browser::{BrowserRights, SessionRequest};
use qo_ui::{DeployError, DeployReport, LinkError, LinkRequest};

use crate::args::{UiArgs, UiCommand, UiDeployArgs, UiLinkArgs};
use crate::failure::{Failure, FailureKind};
use crate::output::style::CYAN;
use crate::session::Session;

/// Session lifetimes that the services accept.
const SESSION_SECONDS: std::ops::RangeInclusive<u64> = 900..=43_200;

pub(super) async fn run(args: &UiArgs, session: &mut Session) -> Result<(), Failure> {
    match &args.command {
        UiCommand::Deploy(args) => deploy(args, session).await,
        UiCommand::Link(args) => link(args, session).await,
    }
}

async fn deploy(args: &UiDeployArgs, session: &mut Session) -> Result<(), Failure> {
    let store = session.open_store()?;
    qo_store::check(&store, session.runtime.as_ref())
        .await
        .map_err(qo::Error::from)?;
    let report = qo_ui::deploy(&store, args.public)
        .await
        .map_err(|error| explain(&error))?;
    if session.screen.json {
        return session.screen.json(&report);
    }
    print_report(&report, session)
}

/// Prints the URL of the dashboard and the next step.
pub(super) fn print_report(report: &DeployReport, session: &mut Session) -> Result<(), Failure> {
    let screen = &mut session.screen;
    let Some(url) = &report.url else {
        screen.note("The files are in the store, but browsers cannot access it. Use `qo serve`, which includes the dashboard.");
        return Ok(());
    };
    screen.line(url)?;
    screen.note(format_args!(
        "Wrote {} of {} files; the others are up to date.",
        report.written, report.files
    ));
    if report.public != Some(true) {
        screen.note("Browsers can open the page only if its files are public. `qo ui deploy --public` makes them, and nothing else, publicly readable.");
    }
    let next = screen.paint_notes.paint(CYAN, "qo ui link");
    screen.note(format_args!(
        "Run {next} to get a link with temporary credentials."
    ));
    Ok(())
}

async fn link(args: &UiLinkArgs, session: &mut Session) -> Result<(), Failure> {
    let seconds = args.lasts.as_secs();
    if !SESSION_SECONDS.contains(&seconds) {
        return Err(Failure::bad_input(
            "--for must be between 15 minutes and 12 hours",
        ));
    }
    let request = LinkRequest {
        session: SessionRequest {
            rights: if args.read_only {
                BrowserRights::Read
            } else {
                BrowserRights::Operate
            },
            // At most 12 hours, as checked above.
            seconds: u32::try_from(seconds).unwrap_or(u32::MAX),
            role: args.role.clone(),
        },
        allow_long_lived: args.allow_long_lived,
        page: args.page.clone(),
        go: args.go.clone(),
    };
    let store = session.open_store()?;
    let link = qo_ui::link(&store, &request)
        .await
        .map_err(|error| match error {
            LinkError::Store(error) => qo::Error::from(qo::EngineError::from(error)).into(),
            LinkError::NoBrowser { .. } => {
                Failure::new(FailureKind::Unsupported, error.to_string())
            }
            LinkError::LongLived { .. } => Failure::new(FailureKind::Denied, error.to_string()),
        })?;
    let screen = &mut session.screen;
    if screen.json {
        return screen.json(&link);
    }
    for note in &link.notes {
        screen.note(note);
    }
    if let Some(expires_at) = link.expires_at {
        screen.note(format_args!("The link expires at {expires_at}."));
    }
    screen.line(&link.url)?;
    Ok(())
}

pub(super) fn explain(error: &DeployError) -> Failure {
    match error {
        DeployError::Policy(cause) => {
            let failure = Failure::from(qo::Error::from(qo::EngineError::from(cause.clone())));
            Failure {
                message: error.to_string(),
                hint: Some("AWS rejects public policies while \"Block public access\" is on for the bucket: turn it off for policies, or use the dashboard of `qo serve`".to_owned()),
                ..failure
            }
        }
        DeployError::File { .. } => Failure::new(FailureKind::Unavailable, error.to_string()),
    }
}
