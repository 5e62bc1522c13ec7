//! `--watch`: repeated output.
//!
//! On a terminal, each output replaces the previous one on the alternate screen. Elsewhere the outputs follow each other, separated by
//! an empty line, or without one for `--json`.

use std::time::Duration;

use qo::Queue;
use qo_store::StoreKind;

use super::style::{DIM, RED};
use super::terminal::Canvas;
use super::{Screen, text, time};
use crate::failure::{Failure, FailureKind};
use crate::signals;

/// Default interval for stores on this machine.
const LOCAL_INTERVAL: Duration = Duration::from_secs(2);
/// Default interval for other stores, where each repetition costs requests.
const REMOTE_INTERVAL: Duration = Duration::from_secs(5);

/// The requested interval, or the default for the store.
pub fn interval(queue: &Queue, requested: Option<Duration>) -> Duration {
    requested.unwrap_or_else(|| match queue.store().map(|store| store.kind) {
        Some(StoreKind::Memory | StoreKind::Sqlite) => LOCAL_INTERVAL,
        _ => REMOTE_INTERVAL,
    })
}

/// Prints the result of `render` repeatedly until interrupted. If the store is unavailable, prints the failure and continues.
pub async fn watch(
    screen: &mut Screen,
    queue: &Queue,
    requested: Option<Duration>,
    title: &str,
    mut render: impl AsyncFnMut(&mut Screen) -> Result<String, Failure>,
) -> Result<(), Failure> {
    let interval = interval(queue, requested);
    let mut stop = signals::StopSignals::listen()?;
    let mut canvas = if screen.terminals().stdout && !screen.json {
        Some(Canvas::open()?)
    } else {
        None
    };
    if let Some(canvas) = &mut canvas {
        // The first result can take a while.
        canvas.draw(&screen.paint.paint(DIM, &format!("{title}  loading …")))?;
    }
    let mut first = true;
    loop {
        let shown = tokio::select! {
            biased;
            () = stop.received() => return Ok(()),
            shown = render(screen) => shown,
        };
        let shown = match shown {
            Ok(shown) => shown,
            Err(failure) if failure.kind == FailureKind::Unavailable => {
                if screen.json {
                    screen.failure(&failure);
                    String::new()
                } else {
                    let message = text::clean(&failure.message);
                    format!("{}\n", screen.paint.paint(RED, &message))
                }
            }
            Err(failure) => return Err(failure),
        };
        if let Some(canvas) = &mut canvas {
            let heading = format!(
                "{title}  {}  every {}, press Ctrl-C to stop",
                time::absolute(queue.now()),
                time::duration(interval)
            );
            let heading = screen.paint.paint(DIM, &heading);
            canvas.draw(&format!("{heading}\n\n{shown}"))?;
        } else {
            if !first && !screen.json {
                screen.line("")?;
            }
            screen.write(&shown)?;
        }
        first = false;
        tokio::select! {
            biased;
            () = stop.received() => return Ok(()),
            () = queue.runtime().sleep(interval) => {}
        }
    }
}
