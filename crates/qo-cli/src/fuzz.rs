//! Fuzz targets of this crate. Each function takes arbitrary bytes and panics if an invariant does not hold.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use std::path::Path;

use clap::{Args as _, FromArgMatches as _, Parser as _};
use qo::{Timestamp, testing::memory_queue};
use qo_remote::fuzz::submit_request;

use crate::args::values::{self, DURATION_MAX, Since};
use crate::args::{Cli, SubmitArgs};
use crate::commands::line_request;
use crate::config::file::SettingsFile;

/// A command line with one word per line. Errors must have a message.
pub fn command_line(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let words = std::iter::once("qo").chain(text.lines());
    match Cli::try_parse_from(words) {
        Ok(cli) => assert!(!format!("{cli:?}").is_empty()),
        Err(error) => assert!(!error.render().to_string().is_empty()),
    }
}

/// One word: a duration, a time, a status or an interval. Accepted values must be within their limits and survive a round trip
/// through text.
pub fn command_word(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let text = text.as_ref();
    if let Ok(duration) = values::duration(text) {
        assert!(duration <= DURATION_MAX);
        let written = humantime::format_duration(duration).to_string();
        assert_eq!(values::duration(&written), Ok(duration), "{written}");
    }
    if let Ok(duration) = values::positive_duration(text) {
        assert!(!duration.is_zero());
    }
    if let Ok(interval) = values::watch_interval(text) {
        assert!((100..=3_600_000).contains(&interval.as_millis()));
    }
    if let Ok(at) = values::timestamp(text) {
        assert_eq!(values::timestamp(&at.to_string()), Ok(at));
    }
    if let Ok(since) = values::since(text) {
        let now = Timestamp::from_millis(1_763_238_840_123);
        let at = since.resolve(now);
        assert!(matches!(since, Since::At(_)) || at <= now);
    }
    if let Ok(status) = values::status(text) {
        assert_eq!(values::status(status.as_str()), Ok(status));
    }
}

/// A line of `qo submit --many`, with and without `--full`. Accepted requests must survive a round trip through the wire format.
pub fn bulk_line(bytes: &[u8]) {
    let Ok(line) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok((queue, _)) = memory_queue() else {
        return;
    };
    for words in [
        &["submit", "--many", "-", "--type", "t"][..],
        &["submit", "--many", "-", "--full"],
        &[
            "submit",
            "--many",
            "-",
            "--full",
            "--type",
            "t",
            "--delay",
            "5m",
            "--retries",
            "2",
        ],
    ] {
        let parser = SubmitArgs::augment_args(clap::Command::new("submit"));
        let matches = parser
            .try_get_matches_from(words)
            .map_err(|error| error.to_string());
        assert!(matches.is_ok(), "{matches:?}");
        let args = matches.map(|matches| SubmitArgs::from_arg_matches(&matches));
        let Ok(Ok(args)) = args else {
            return;
        };
        match line_request(&queue, &args, line) {
            Ok(request) => submit_request(&request),
            Err(failure) => assert!(!failure.to_string().is_empty()),
        }
    }
}

/// The settings file.
pub fn settings_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let path = Path::new("qo.toml");
    match SettingsFile::parse(path, &text) {
        Ok(file) => {
            let again = format!("{:?}", SettingsFile::parse(path, &text).ok());
            assert_eq!(again, format!("{:?}", Some(file)));
        }
        Err(failure) => assert!(failure.to_string().contains("qo.toml"), "{failure}"),
    }
}
