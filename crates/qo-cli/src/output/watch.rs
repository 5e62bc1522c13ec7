//! Showing the same thing again and again, as it changes.
//!
//! On a terminal each look is drawn over the one before, on a page of its own that is gone at the end. Elsewhere the looks follow each
//! other, with an empty line between them; with `--json`, as the lines of each.

use std::time::Duration;

use qo::Queue;
use qo_store::StoreKind;

use super::style::{DIM, RED};
use super::terminal::Canvas;
use super::{Screen, text, time};
use crate::failure::{Failure, FailureKind};
use crate::signals;

/// How often a look is taken where it costs nothing.
const LOCAL_INTERVAL: Duration = Duration::from_secs(2);
/// How often a look is taken where it costs requests.
const REMOTE_INTERVAL: Duration = Duration::from_secs(5);

/// What suits the store, if nothing was said.
pub fn interval(queue: &Queue, asked: Option<Duration>) -> Duration {
    asked.unwrap_or_else(|| match queue.store().map(|store| store.kind) {
        Some(StoreKind::Memory | StoreKind::Sqlite) => LOCAL_INTERVAL,
        _ => REMOTE_INTERVAL,
    })
}

/// Shows what `look` gives until somebody interrupts it. A look that fails because the store is away for a while is shown as such, and
/// taken again.
pub async fn watch(
    screen: &mut Screen,
    queue: &Queue,
    asked: Option<Duration>,
    title: &str,
    mut look: impl AsyncFnMut(&mut Screen) -> Result<String, Failure>,
) -> Result<(), Failure> {
    let interval = interval(queue, asked);
    let mut stop = signals::Stop::listen()?;
    let mut canvas = if screen.terminals().stdout && !screen.json {
        Some(Canvas::open()?)
    } else {
        None
    };
    if let Some(canvas) = &mut canvas {
        // The first look can take a while.
        canvas.draw(&screen.paint.paint(DIM, &format!("{title}  looking …")))?;
    }
    let mut first = true;
    loop {
        let shown = tokio::select! {
            biased;
            () = stop.asked() => return Ok(()),
            shown = look(screen) => shown,
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
                "{title}  {}  every {}, Ctrl-C ends",
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
            () = stop.asked() => return Ok(()),
            () = queue.runtime().sleep(interval) => {}
        }
    }
}
