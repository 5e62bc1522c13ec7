//! The keys of `qo top`: they select a queue or a failure and act on it.

use std::time::Duration;

use qo::{Operation, PauseNote, PauseTarget, Queue, TaskId};
use qo_core::Actor;

use super::top::{Counted, TopView, render_selected, take};
use crate::args::TopArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::keyboard::{Key, Keyboard};
use crate::output::style::{DIM, RED, YELLOW};
use crate::output::terminal::Canvas;
use crate::output::{Screen, text, time};
use crate::signals::StopSignals;

const HELP: &str = "↑↓ select   p pause or resume the queue   r replay the failure   a archive the failure   q quit";

/// What the keys act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Selected {
    Queue(String),
    Failure(TaskId),
}

/// What a key asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Move(Selected),
    Pause { queue: String, paused: bool },
    Replay(TaskId),
    Archive(TaskId),
    Quit,
    Nothing,
}

/// Shows the view until it is quit, and does what keys ask for.
pub(super) async fn interact(
    args: &TopArgs,
    queue: &Queue,
    actor: Option<Actor>,
    mut before: Counted,
    pause: Duration,
    mut keyboard: Keyboard,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let mut stop = StopSignals::listen()?;
    let mut canvas = Canvas::open()?;
    let mut selected = None;
    let mut message = String::new();
    let mut view = None;
    loop {
        let taken = tokio::select! {
            biased;
            () = stop.received() => return Ok(()),
            taken = take(args, queue, &before) => taken,
        };
        match taken {
            Ok((taken, now)) => {
                before = now;
                selected = still_there(&taken, selected);
                view = Some(taken);
            }
            Err(failure) if failure.kind == FailureKind::Unavailable => {
                message = screen.paint.paint(RED, &text::clean(&failure.message));
            }
            Err(failure) => return Err(failure),
        }
        let until = queue.runtime().monotonic() + pause;
        loop {
            draw(
                &mut canvas,
                view.as_ref(),
                selected.as_ref(),
                &message,
                queue,
                pause,
                screen,
            )?;
            let left = until.saturating_sub(queue.runtime().monotonic());
            let key = tokio::select! {
                biased;
                () = stop.received() => return Ok(()),
                key = keyboard.next() => key,
                () = queue.runtime().sleep(left) => break,
            };
            let Some(view) = &view else { continue };
            match asked(view, selected.as_ref(), key) {
                Asked::Quit => return Ok(()),
                Asked::Nothing => {}
                Asked::Move(to) => selected = Some(to),
                asked => {
                    message = match act(queue, actor.clone(), asked).await {
                        Ok(done) => screen.paint.paint(YELLOW, &done),
                        Err(error) => screen.paint.paint(RED, &text::clean(&error.to_string())),
                    };
                    // Show the effect at once.
                    break;
                }
            }
        }
    }
}

fn draw(
    canvas: &mut Canvas,
    view: Option<&TopView>,
    selected: Option<&Selected>,
    message: &str,
    queue: &Queue,
    pause: Duration,
    screen: &Screen,
) -> Result<(), Failure> {
    let heading = format!(
        "qo top  {}  every {}",
        time::absolute(queue.now()),
        time::duration(pause)
    );
    let heading = screen.paint.paint(DIM, &heading);
    let help = screen.paint.paint(DIM, HELP);
    let shown = match view {
        Some(view) => render_selected(view, queue.now(), selected, screen),
        None => String::new(),
    };
    canvas.draw(&format!("{heading}\n{help}\n{message}\n{shown}"))?;
    Ok(())
}

/// All that can be selected, in the order of the view.
fn rows(view: &TopView) -> Vec<Selected> {
    let queues = view.queues.iter();
    let queues = queues.map(|queue| Selected::Queue(queue.queue.clone()));
    let failures = view.failures.iter();
    let failures = failures.map(|failure| Selected::Failure(failure.id));
    queues.chain(failures).collect()
}

/// The selection, if it is still in the view, else the first row.
fn still_there(view: &TopView, selected: Option<Selected>) -> Option<Selected> {
    let rows = rows(view);
    let kept = selected.filter(|selected| rows.contains(selected));
    kept.or_else(|| rows.into_iter().next())
}

/// What a key asks for.
fn asked(view: &TopView, selected: Option<&Selected>, key: Key) -> Asked {
    let rows = rows(view);
    let at = selected.and_then(|selected| rows.iter().position(|row| row == selected));
    let row = |at: usize| rows.get(at).cloned().map_or(Asked::Nothing, Asked::Move);
    match (key, selected) {
        (Key::Char('q'), _) => Asked::Quit,
        (Key::Up | Key::Char('k'), _) => row(at.unwrap_or(0).saturating_sub(1)),
        (Key::Down | Key::Char('j'), _) => row(at.map_or(0, |at| at + 1)),
        (Key::Char('p'), Some(Selected::Queue(name))) => {
            let queue = view.queues.iter().find(|queue| queue.queue == *name);
            queue.map_or(Asked::Nothing, |queue| Asked::Pause {
                queue: name.clone(),
                paused: !queue.paused,
            })
        }
        (Key::Char('r'), Some(Selected::Failure(id))) => Asked::Replay(*id),
        (Key::Char('a'), Some(Selected::Failure(id))) => Asked::Archive(*id),
        _ => Asked::Nothing,
    }
}

/// Does what was asked for, and says so.
async fn act(queue: &Queue, actor: Option<Actor>, asked: Asked) -> Result<String, qo::Error> {
    Ok(match asked {
        Asked::Pause {
            queue: name,
            paused,
        } => {
            let target = PauseTarget::Queue(name.parse()?);
            let note = paused.then_some(PauseNote {
                by: actor,
                reason: None,
            });
            queue.set_pause(&target, note).await?;
            let done = if paused { "Paused" } else { "Resumed" };
            format!("{done} queue {name}.")
        }
        Asked::Replay(id) => {
            queue
                .engine()
                .act(id, Operation::Replay.by(actor.as_ref()))
                .await?;
            format!("Replayed {id}.")
        }
        Asked::Archive(id) => {
            queue
                .engine()
                .act(id, Operation::Archive.by(actor.as_ref()))
                .await?;
            format!("Archived {id}.")
        }
        Asked::Move(_) | Asked::Quit | Asked::Nothing => String::new(),
    })
}
