//! `qo ui deploy` and `qo ui link`.

use qo_store::browser::{BrowserRights, SessionRequest};
use qo_ui::{DeployError, DeployReport, LinkError, LinkWish};

use crate::args::{UiArgs, UiCommand, UiDeployArgs, UiLinkArgs};
use crate::failure::{Failure, FailureKind};
use crate::output::style::CYAN;
use crate::session::Session;

/// What the services that make sessions allow.
const SESSION_SECONDS: std::ops::RangeInclusive<u64> = 900..=43_200;

pub(super) async fn run(args: &UiArgs, session: &mut Session) -> Result<(), Failure> {
    match &args.command {
        UiCommand::Deploy(args) => deploy(args, session).await,
        UiCommand::Link(args) => link(args, session).await,
    }
}

async fn deploy(args: &UiDeployArgs, session: &mut Session) -> Result<(), Failure> {
    let store = session.open_store()?;
    qo_store::check(&store).await.map_err(qo::Error::from)?;
    let report = qo_ui::deploy(&store, args.public)
        .await
        .map_err(|error| explain(&error))?;
    if session.screen.json {
        return session.screen.json(&report);
    }
    tell(&report, session)
}

/// Says where the dashboard is, and what is left to do.
pub(super) fn tell(report: &DeployReport, session: &mut Session) -> Result<(), Failure> {
    let screen = &mut session.screen;
    let Some(url) = &report.url else {
        screen.note("The files are in the store, but no browser can call it: `qo serve` brings the dashboard with it.");
        return Ok(());
    };
    screen.line(url)?;
    screen.note(format_args!(
        "{} of {} files were written.",
        report.written, report.files
    ));
    if report.public != Some(true) {
        screen.note("A browser can open the page only if everybody may read it: `qo ui deploy --public` lets them, and nothing else.");
    }
    let next = screen.paint_notes.paint(CYAN, "qo ui link");
    screen.note(format_args!("{next} opens it with a session of its own."));
    Ok(())
}

async fn link(args: &UiLinkArgs, session: &mut Session) -> Result<(), Failure> {
    let seconds = args.lasts.as_secs();
    if !SESSION_SECONDS.contains(&seconds) {
        return Err(Failure::bad_input("--for must be 15 minutes to 12 hours"));
    }
    let wish = LinkWish {
        session: SessionRequest {
            rights: if args.read_only {
                BrowserRights::Read
            } else {
                BrowserRights::Operate
            },
            // It is at most 12 hours, as was just checked.
            seconds: u32::try_from(seconds).unwrap_or(u32::MAX),
            role: args.role.clone(),
        },
        allow_long_lived: args.allow_long_lived,
        page: args.page.clone(),
        go: args.go.clone(),
    };
    let store = session.open_store()?;
    let made = qo_ui::link(&store, &wish)
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
        return screen.json(&made);
    }
    for note in &made.notes {
        screen.note(note);
    }
    if let Some(expires_at) = made.expires_at {
        screen.note(format_args!("It ends at {expires_at}."));
    }
    screen.line(&made.url)?;
    Ok(())
}

pub(super) fn explain(error: &DeployError) -> Failure {
    match error {
        DeployError::Policy(cause) => {
            let failure = Failure::from(qo::Error::from(qo::EngineError::from(cause.clone())));
            Failure {
                message: error.to_string(),
                hint: Some("AWS refuses public policies while the bucket's \"Block public access\" is on: switch it off for policies, or open the dashboard from `qo serve`".to_owned()),
                ..failure
            }
        }
        DeployError::File { .. } => Failure::new(FailureKind::Unavailable, error.to_string()),
    }
}
