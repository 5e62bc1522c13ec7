//! The log, on standard error.
//!
//! Store requests are logged in a compact form: method, path, status, time.

use std::fmt::{self, Write as _};

use anstyle::Style;
use qo_store::runtime::{Runtime, TokioRuntime};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use crate::environment::Environment;
use crate::output::style::{BLUE, DIM, GREEN, Paint, RED, YELLOW};
use crate::output::{text, time};

/// Log verbosity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verbosity {
    /// The number of `-v` flags.
    pub verbose: u8,
    /// Whether `-q` was given.
    pub quiet: bool,
    /// Whether the command runs until it is stopped.
    pub is_service: bool,
}

/// The filter directives used without `RUST_LOG`.
fn directives(verbosity: Verbosity) -> &'static str {
    match verbosity {
        Verbosity { quiet: true, .. } => "error",
        Verbosity {
            verbose: 0,
            is_service: true,
            ..
        } => {
            // The worker prints its start, its stop and the outcome of each attempt, so the log need not repeat them.
            "warn,qo=info,qo_cli=info,qo_direct=info,qo_broker=info,qo_remote=info,qo::worker::outcome=error,qo::worker::stop=warn"
        }
        Verbosity { verbose: 0, .. } => "warn,qo::worker::outcome=error",
        Verbosity { verbose: 1, .. } => {
            "warn,qo=info,qo_cli=info,qo_direct=info,qo_broker=info,qo_remote=info,qo_store::http_layer=debug,qo_store::wrap::logging=debug,qo_store::probe=debug"
        }
        Verbosity { verbose: 2, .. } => {
            "info,qo=debug,qo_cli=debug,qo_direct=debug,qo_broker=debug,qo_remote=debug,qo_store=debug"
        }
        Verbosity { .. } => {
            "debug,qo=trace,qo_cli=trace,qo_direct=trace,qo_broker=trace,qo_remote=trace,qo_store=trace"
        }
    }
}

/// Starts the log of this process. `RUST_LOG` takes precedence over the flags. A second call has no effect.
pub(crate) fn start(verbosity: Verbosity, environment: &Environment, paint: Paint) {
    let filter = match environment.var("RUST_LOG") {
        Some(directives) => EnvFilter::builder().parse_lossy(directives),
        None => EnvFilter::builder().parse_lossy(directives(verbosity)),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(paint.on)
        .event_format(LineFormat {
            paint,
            shows_probe: verbosity.verbose > 1,
            runtime: TokioRuntime::shared(),
        })
        .finish();
    // An error means that a subscriber is already set.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Formats each event as one line: time, level, message, fields.
struct LineFormat {
    paint: Paint,
    /// Whether to log the requests of the probe. There are about a thousand, and one line sums them up.
    shows_probe: bool,
    runtime: std::sync::Arc<dyn Runtime>,
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        if fields.is_probe() && !self.shows_probe {
            return Ok(());
        }
        let at = self
            .paint
            .paint(DIM, &time::time_of_day(self.runtime.now()));
        let line = fields.request(self.paint).unwrap_or_else(|| {
            let (word, style) = level(*event.metadata().level());
            fields.sentence(&self.paint.paint(style, word), self.paint)
        });
        write!(writer, "{at} {line}")?;
        // The attempt that the event belongs to, if any.
        for span in context.event_scope().into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<FormattedFields<N>>()
                && !fields.is_empty()
            {
                write!(writer, " {fields}")?;
            }
        }
        writeln!(writer)
    }
}

fn level(level: Level) -> (&'static str, Style) {
    match level {
        Level::ERROR => ("ERROR", RED),
        Level::WARN => (" WARN", YELLOW),
        Level::INFO => (" INFO", GREEN),
        Level::DEBUG => ("DEBUG", BLUE),
        Level::TRACE => ("TRACE", DIM),
    }
}

/// The fields of an event.
#[derive(Debug, Default)]
struct EventFields {
    message: String,
    others: Vec<(&'static str, String)>,
}

impl EventFields {
    fn get(&self, name: &str) -> Option<&str> {
        let mut others = self.others.iter();
        others
            .find(|(own, _)| *own == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether the event is a request of the probe.
    fn is_probe(&self) -> bool {
        let path = self.get("path").unwrap_or_default();
        self.get("method").is_some() && (path.starts_with("probe/") || path.contains("/probe/"))
    }

    /// The line for a store request, if the event is one.
    fn request(&self, paint: Paint) -> Option<String> {
        let (method, path) = (self.get("method")?, self.get("path")?);
        let (outcome, style) = match (self.get("status"), self.get("silent").or(self.get("error")))
        {
            (Some(status), _) if status.starts_with(['4', '5']) => (status, YELLOW),
            (Some(status), _) => (status, GREEN),
            (None, Some(problem)) => (problem, RED),
            (None, None) => (self.message.as_str(), DIM),
        };
        let elapsed = self
            .get("elapsed_ms")
            .map_or(String::new(), |elapsed| format!("{elapsed} ms"));
        Some(format!(
            "{method:<6} {path} {} {}",
            paint.paint(style, &text::clean(outcome)),
            paint.paint(DIM, &elapsed),
        ))
    }

    fn sentence(&self, level: &str, paint: Paint) -> String {
        let mut line = format!("{level} {}", text::clean(&self.message));
        for (name, value) in &self.others {
            let name = paint.paint(DIM, &format!("{name}="));
            // Writing to a string cannot fail.
            let _ = write!(line, " {name}{}", text::clean(value));
        }
        line
    }

    fn add(&mut self, field: &Field, value: String) {
        if field.name() == "message" {
            self.message = value;
        } else {
            self.others.push((field.name(), value));
        }
    }
}

impl Visit for EventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_requests_are_logged_in_a_compact_form() {
        let fields = EventFields {
            message: "answer".to_owned(),
            others: vec![
                ("method", "GET".to_owned()),
                ("path", "/b/tasks/5/x.json".to_owned()),
                ("status", "200".to_owned()),
                ("elapsed_ms", "12".to_owned()),
            ],
        };
        let line = fields.request(Paint::default()).unwrap();
        assert_eq!(line, "GET    /b/tasks/5/x.json 200 12 ms");
        let fields = EventFields {
            message: "swept".to_owned(),
            others: vec![("count", "3\u{1b}[2J".to_owned())],
        };
        assert!(fields.request(Paint::default()).is_none());
        let line = fields.sentence("DEBUG", Paint::default());
        assert_eq!(line, "DEBUG swept count=3\u{fffd}[2J");
    }

    #[test]
    fn every_directive_is_valid() {
        for verbose in 0..=4 {
            for quiet in [false, true] {
                for is_service in [false, true] {
                    let verbosity = Verbosity {
                        verbose,
                        quiet,
                        is_service,
                    };
                    assert!(EnvFilter::try_new(directives(verbosity)).is_ok());
                }
            }
        }
    }
}
