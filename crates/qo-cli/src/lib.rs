//! The `qo` command as a library, so that tests can run it and the manual pages can be generated from its arguments.
//!
//! [`args`] parses and validates the arguments, [`config`] combines the settings, and [`commands`] runs a command with a [`Session`]
//! that holds both. Errors are [`Failure`]s, each with an exit code ([`failure`]).

pub mod args;
pub mod commands;
pub mod config;
mod connection;
pub mod environment;
pub mod failure;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
pub mod handlers;
mod keys;
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

/// Runs a command line whose first word is the program name. Returns the exit code.
pub fn run(words: impl IntoIterator<Item = OsString>, environment: Environment, io: Io) -> u8 {
    let words: Vec<OsString> = words.into_iter().collect();
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return print_usage(&error, &words, &environment, io),
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
    let result = runtime.block_on(async {
        let result = commands::run(command, &mut session).await;
        // A command that was stopped at once waits for nothing.
        if !matches!(&result, Err(failure) if failure.kind == FailureKind::Interrupted) {
            session.close().await;
        }
        result
    });
    // Background work must not keep the process running.
    runtime.shutdown_background();
    let result = result.map_err(|failure| session.explain(failure));
    code(&mut session.screen, |screen| {
        result?;
        Ok(screen.flush()?)
    })
}

/// Prints the failure, if there is one, and returns the exit code.
fn code(screen: &mut Screen, run: impl FnOnce(&mut Screen) -> Result<(), Failure>) -> u8 {
    match run(screen) {
        Ok(()) => 0,
        Err(failure) => {
            if failure.kind != FailureKind::OutputClosed {
                screen.failure(&failure);
            }
            failure.code()
        }
    }
}

/// Prints help and version to standard output, and usage errors to standard error.
fn print_usage(error: &clap::Error, words: &[OsString], environment: &Environment, io: Io) -> u8 {
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
        screen.failure(&Failure::bad_input(message).hint("run `qo help` for a list of commands"));
    } else {
        let text = if screen.paint_notes.on {
            rendered.ansi().to_string()
        } else {
            rendered.to_string()
        };
        screen.error_text(text.trim_end());
    }
    FailureKind::BadInput.code()
}
