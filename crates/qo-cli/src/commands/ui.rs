//! `qo ui deploy` and `qo ui link`.

use qo_remote::RemoteConfig;
use qo_server::tokens::Scope;
use qo_store::browser::{BrowserRights, SessionRequest};
use qo_ui::{DeployError, DeployReport, Link, LinkError, LinkRequest, ServerAccess};

use super::cluster::remote;
use super::token::create_remote;
use crate::args::{TokenCreateArgs, UiArgs, UiCommand, UiDeployArgs, UiLinkArgs};
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
    let url = session.settings.store.value.clone().unwrap_or_default();
    if qo::names_servers(&url) {
        return print_link(&link_to_server(args, &url, session).await?, session);
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
            error => Failure::new(FailureKind::Unavailable, error.to_string()),
        })?;
    print_link(&link, session)
}

/// A link to the dashboard of a server. With a token, it contains a new one with the requested rights and lifetime.
async fn link_to_server(args: &UiLinkArgs, url: &str, session: &Session) -> Result<Link, Failure> {
    if args.role.is_some() {
        return Err(Failure::bad_input(
            "--role is for buckets, and --store names a server",
        ));
    }
    let invalid = |error: &dyn std::fmt::Display| Failure::bad_input(error.to_string());
    let servers = RemoteConfig::parse(url).map_err(|error| invalid(&error))?;
    let server = servers.servers.first().map(ToString::to_string);
    let server = server.unwrap_or_default();
    let mut notes = Vec::new();
    let mut access = ServerAccess {
        server: &server,
        token: None,
        expires_at: None,
        read_only: args.read_only,
    };
    let Some(own) = session.environment.var("QO_TOKEN") else {
        notes.push("There is no QO_TOKEN, so the link has none. The page asks for a token if the server needs one.".to_owned());
        let url = qo_ui::server_url(access, args.page.as_deref(), args.go.as_deref());
        return Ok(Link {
            url,
            expires_at: None,
            notes,
        });
    };
    let wanted = TokenCreateArgs {
        name: "link to the dashboard".to_owned(),
        scope: vec![if args.read_only {
            Scope::Read
        } else {
            Scope::Admin
        }],
        queue: Vec::new(),
        task_type: Vec::new(),
        valid_for: Some(args.lasts),
    };
    let engine = remote(session, None)?;
    let created = create_remote(&engine, &wanted, session).await;
    match &created {
        Ok(token) => {
            access.token = Some(token.reveal());
            access.expires_at = token.record.expires_at;
        }
        Err(failure) if args.allow_long_lived => {
            access.token = Some(own);
            notes.push(format!("The link contains the token in use, because no temporary one could be created ({}). Anyone who sees the link has it.", failure.message));
        }
        Err(failure) => {
            let text = format!("cannot create a temporary token: {}", failure.message);
            return Err(Failure::new(FailureKind::Denied, text).hint(
                "use a token with the scope admin, or put the token in use into the link with --allow-long-lived",
            ));
        }
    }
    let url = qo_ui::server_url(access, args.page.as_deref(), args.go.as_deref());
    Ok(Link {
        url,
        expires_at: access.expires_at,
        notes,
    })
}

fn print_link(link: &Link, session: &mut Session) -> Result<(), Failure> {
    let screen = &mut session.screen;
    if screen.json {
        return screen.json(link);
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
        error => Failure::new(FailureKind::Unavailable, error.to_string()),
    }
}
