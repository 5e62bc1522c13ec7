//! The `qo` command, as a library, so that tests can run it and other programs can know its arguments.
//!
//! Raw arguments become validated ones in [`args`], settings are put together in [`config`], and a command of [`commands`] runs with
//! a [`Session`] that holds both. What goes wrong is a [`Failure`] with one exit code ([`failure`]).

pub mod args;
pub mod commands;
pub mod config;
mod connection;
pub mod environment;
pub mod failure;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
pub mod handlers;
mod logging;
pub mod output;
pub mod session;
pub mod signals;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, GlobalArgs};
use crate::config::Settings;
use crate::environment::Environment;
use crate::failure::{Failure, FailureKind};
use crate::logging::Verbosity;
use crate::output::style::ColourChoice;
use crate::output::{Io, Screen};

pub use crate::args::command;
pub use crate::session::Session;

/// Runs the command of this process.
pub fn main() -> ExitCode {
    let environment = Environment::of_process();
    ExitCode::from(run(std::env::args_os(), environment, Io::of_process()))
}

/// Runs a command line, whose first word is the program's name, and gives the exit code.
pub fn run(words: impl IntoIterator<Item = OsString>, environment: Environment, io: Io) -> u8 {
    let words: Vec<OsString> = words.into_iter().collect();
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return tell_usage(&error, &words, &environment, io),
    };
    let GlobalArgs {
        color,
        json,
        quiet,
        verbose,
        ..
    } = cli.global;
    let mut screen = Screen::new(io, color, json, quiet, &environment);
    let Some(command) = cli.command else {
        let help = args::command().render_help();
        let text = if screen.paint.on {
            help.ansi().to_string()
        } else {
            help.to_string()
        };
        return code(&mut screen, |screen| Ok(screen.write(&text)?));
    };
    let verbosity = Verbosity {
        verbose,
        quiet: quiet || (verbose == 0 && screen.terminals().stdout && command.is_drawn()),
        is_service: command.is_service(),
    };
    logging::start(verbosity, &environment, screen.paint_notes);
    let settings = match Settings::resolve(&cli.global, &environment) {
        Ok(settings) => settings,
        Err(failure) => return code(&mut screen, |_| Err(failure)),
    };
    for warning in &settings.warnings {
        screen.warn(warning);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("cannot start the runtime: {error}");
            return code(&mut screen, |_| {
                Err(Failure::new(FailureKind::Other, message))
            });
        }
    };
    let mut session = Session::new(environment, settings, screen);
    let outcome = runtime.block_on(async {
        let outcome = commands::run(command, &mut session).await;
        session.close().await;
        outcome
    });
    // What still goes on in the background must not keep the command from ending.
    runtime.shutdown_background();
    let outcome = outcome.map_err(|failure| session.explain(failure));
    code(&mut session.screen, |screen| {
        outcome?;
        Ok(screen.flush()?)
    })
}

/// The exit code of an outcome, whose failure is told.
fn code(screen: &mut Screen, outcome: impl FnOnce(&mut Screen) -> Result<(), Failure>) -> u8 {
    match outcome(screen) {
        Ok(()) => 0,
        Err(failure) => {
            if failure.kind != FailureKind::OutputClosed {
                screen.failure(&failure);
            }
            failure.kind.code()
        }
    }
}

/// Help and version go to standard output and are no failure; what could not be understood is one.
fn tell_usage(error: &clap::Error, words: &[OsString], environment: &Environment, io: Io) -> u8 {
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let colour = if has("--color=never") {
        ColourChoice::Never
    } else if has("--color=always") {
        ColourChoice::Always
    } else {
        ColourChoice::Auto
    };
    let mut screen = Screen::new(io, colour, has("--json"), false, environment);
    let rendered = error.render();
    if !error.use_stderr() {
        let text = if screen.paint.on {
            rendered.ansi().to_string()
        } else {
            rendered.to_string()
        };
        return code(&mut screen, |screen| Ok(screen.write(&text)?));
    }
    if screen.json {
        let text = rendered.to_string();
        let message = text.trim().trim_start_matches("error: ");
        let message = message.split("\n\nUsage:").next().unwrap_or(message);
        screen.failure(
            &Failure::bad_input(message).hint("`qo help` lists the commands and their flags"),
        );
    } else {
        let text = if screen.paint_notes.on {
            rendered.ansi().to_string()
        } else {
            rendered.to_string()
        };
        screen.tell(text.trim_end());
    }
    FailureKind::BadInput.code()
}
