//! The live view: what there is in the queue, what just ended, and what to try next.

use std::collections::VecDeque;
use std::time::Duration;

use qo::{Outcome, Stats, Status, TaskId, Timestamp};

use super::hints::Hints;
use crate::commands::activity::Ended;
use crate::commands::worker::{again, again_at, word};
use crate::output::style::{BOLD, CYAN, DIM, Paint, of_status};
use crate::output::table::{Cell, Table};
use crate::output::terminal::Size;
use crate::output::{text, time};

/// How many ended attempts are shown at the most, where the terminal has room for them, and at the least.
const SHOWN_MAX: usize = 15;
const SHOWN_MIN: usize = 2;

/// How many queues are shown.
const QUEUES_MAX: usize = 5;

/// The time over which the rate is taken.
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// The statuses that have a column, in the order of a task's life.
const STATUSES: [(Status, &str); 5] = [
    (Status::Pending, "PENDING"),
    (Status::Running, "RUNNING"),
    (Status::Completed, "COMPLETED"),
    (Status::Failed, "FAILED"),
    (Status::Cancelled, "CANCELLED"),
];

/// What the view shows.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) store: String,
    pub(super) worker: String,
    pub(super) slots: usize,
    pub(super) hints: Hints,
    pub(super) stats: Option<Stats>,
    ended: VecDeque<Ended>,
    completions: VecDeque<Timestamp>,
    /// The first tasks of their sort. The commands that name them stay the same, so that they can be typed.
    completed: Option<TaskId>,
    failed: Option<TaskId>,
}

/// What changes by itself, at the time of a look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Timestamp,
    pub(super) elapsed: Duration,
    pub(super) running: usize,
    pub(super) submitted: u64,
    pub(super) per_second: f64,
    pub(super) samples_left: Option<Duration>,
}

impl Board {
    pub(super) fn new(store: String, worker: String, slots: usize, hints: Hints) -> Self {
        Self {
            store,
            worker,
            slots,
            hints,
            stats: None,
            ended: VecDeque::new(),
            completions: VecDeque::new(),
            completed: None,
            failed: None,
        }
    }

    /// Takes note of an attempt that ended.
    pub(super) fn note(&mut self, ended: Ended) {
        match ended.outcome {
            Outcome::Completed => {
                self.completions.push_back(ended.at);
                self.completed.get_or_insert(ended.id);
            }
            Outcome::Failed => {
                self.failed.get_or_insert(ended.id);
            }
            _ => {}
        }
        self.ended.push_front(ended);
        self.ended.truncate(SHOWN_MAX);
    }

    /// The view as text, for a terminal of this size.
    pub(super) fn render(&mut self, moment: Moment, paint: Paint, size: Size) -> String {
        let mut above = String::new();
        let elapsed = time::duration(Duration::from_secs(moment.elapsed.as_secs()));
        let heading = format!(
            "{}  {}  {}",
            paint.paint(BOLD, "qo dev"),
            self.store,
            paint.paint(DIM, &format!("for {elapsed}")),
        );
        push(&mut above, &heading);
        push(&mut above, "");
        above.push_str(&self.counts(paint, size.columns));
        push(&mut above, "");
        push(&mut above, &self.rate(moment));
        push(&mut above, &samples(moment));
        push(&mut above, "");

        let steps = self.hints.next_steps(self.completed, self.failed);
        let mut below = String::from("\n");
        for line in &steps {
            let style = if line.starts_with(' ') { CYAN } else { BOLD };
            push(
                &mut below,
                &paint.paint(style, &text::cut(line, size.columns)),
            );
        }
        push(&mut below, "");
        below.push_str(&paint.paint(DIM, "Ctrl-C stops; the tasks stay"));

        // One line is for the headings of the table.
        let taken = above.lines().count() + below.lines().count() + 1;
        let room = size.rows.saturating_sub(taken).max(SHOWN_MIN);
        let recent = if self.ended.is_empty() {
            format!("{}\n", paint.paint(DIM, "nothing has ended yet"))
        } else {
            self.recent(moment.now, paint, size.columns, room)
        };
        above + &recent + &below
    }

    fn counts(&self, paint: Paint, columns: usize) -> String {
        let Some(stats) = &self.stats else {
            return format!("{}\n", paint.paint(DIM, "counting the tasks ..."));
        };
        if stats.queues.is_empty() {
            return format!("{}\n", paint.paint(DIM, "no tasks yet"));
        }
        let mut table = Table::new().column("QUEUE");
        for (_, heading) in STATUSES {
            table = table.number(heading);
        }
        for (name, queue) in stats.queues.iter().take(QUEUES_MAX) {
            let mut cells = vec![Cell::new(name.as_str())];
            for (status, _) in STATUSES {
                let number = queue.statuses.get(&status).copied().unwrap_or(0);
                let style = if number == 0 { DIM } else { of_status(status) };
                cells.push(Cell::styled(text::grouped(number), style));
            }
            table.row(cells);
        }
        let mut shown = table.render(paint, Some(columns));
        let more = stats.queues.len().saturating_sub(QUEUES_MAX);
        if more > 0 {
            let more = text::count(more as u64, "more queue");
            push(&mut shown, &paint.paint(DIM, &format!("and {more}")));
        }
        if stats.partial {
            shown.push_str("and more: only a part of the tasks was counted\n");
        }
        shown
    }

    fn rate(&mut self, moment: Moment) -> String {
        let millis = u64::try_from(RATE_WINDOW.as_millis()).unwrap_or(u64::MAX);
        let since = moment.now.minus_millis(millis);
        while self.completions.front().is_some_and(|at| *at < since) {
            self.completions.pop_front();
        }
        let window = RATE_WINDOW.min(moment.elapsed).as_secs_f64().max(1.0);
        #[expect(clippy::cast_precision_loss, reason = "a count of a few seconds")]
        let rate = self.completions.len() as f64 / window;
        format!(
            "worker {}: {} of {} busy, {rate:.1} tasks/s completed",
            self.worker,
            moment.running,
            text::count(self.slots as u64, "slot"),
        )
    }

    fn recent(&self, now: Timestamp, paint: Paint, columns: usize, rows: usize) -> String {
        let mut table = Table::new()
            .column("ENDED")
            .column("TYPE")
            .column("OUTCOME")
            .number("ATTEMPT")
            .number("TOOK")
            .flexible("");
        for ended in self.ended.iter().take(rows) {
            let (word, style) = word(ended.outcome);
            let remark = match (again_at(ended.outcome), &ended.error) {
                (Some(at), _) => again(at, now),
                (None, Some(error)) => error.clone(),
                (None, None) => ended.id.to_string(),
            };
            table.row(vec![
                Cell::styled(time::relative(ended.at, now), DIM),
                Cell::new(ended.task_type.as_str()),
                Cell::styled(word, style),
                Cell::new(ended.attempt.to_string()),
                Cell::new(time::duration(ended.took)),
                Cell::styled(remark, DIM),
            ]);
        }
        table.render(paint, Some(columns))
    }
}

fn samples(moment: Moment) -> String {
    let submitted = text::count(moment.submitted, "sample task");
    match moment.samples_left {
        Some(left) => format!(
            "{submitted} submitted, {} a second for another {}",
            moment.per_second,
            time::duration(Duration::from_secs(left.as_secs())),
        ),
        None => format!("{submitted} submitted; the worker goes on, submit your own"),
    }
}

fn push(view: &mut String, line: &str) {
    view.push_str(line);
    view.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(outcome: Outcome, error: Option<&str>) -> Ended {
        Ended {
            at: "2026-01-01T10:00:00Z".parse().unwrap(),
            id: "550e8400-e29b-41d4-a716-446655440000".parse().unwrap(),
            task_type: "demo.flaky".parse().unwrap(),
            queue: qo::QueueName::default(),
            attempt: 1,
            took: Duration::from_millis(120),
            outcome,
            error: error.map(str::to_owned),
        }
    }

    fn moment() -> Moment {
        Moment {
            now: "2026-01-01T10:00:01Z".parse().unwrap(),
            elapsed: Duration::from_secs(4),
            running: 2,
            submitted: 12,
            per_second: 4.0,
            samples_left: Some(Duration::from_millis(55_900)),
        }
    }

    fn size(columns: usize, rows: usize) -> Size {
        Size { columns, rows }
    }

    fn board() -> Board {
        let hints = Hints::new("qo", None, true);
        Board::new("SQLite queue.db".into(), "w1".into(), 4, hints)
    }

    #[test]
    fn the_view_shows_counts_rate_recent_attempts_and_next_steps() {
        let mut board = board();
        let mut stats = Stats::default();
        let queue = stats.queues.entry(qo::QueueName::default()).or_default();
        queue.statuses.insert(Status::Completed, 1_234);
        board.stats = Some(stats);
        board.note(ended(Outcome::Completed, None));
        let at = "2026-01-01T10:00:03Z".parse().unwrap();
        board.note(ended(Outcome::Retried { at }, Some("no luck")));
        board.note(ended(Outcome::Failed, Some("no luck")));
        let view = board.render(moment(), Paint::default(), size(100, 40));
        for part in [
            "qo dev  SQLite queue.db  for 4 s",
            "1,234",
            "worker w1: 2 of 4 slots busy, 0.2 tasks/s completed",
            "12 sample tasks submitted, 4 a second for another 55 s",
            "again in 2.0 s",
            "no luck",
            "qo submit --type demo.greet",
            "qo history 550e8400-e29b-41d4-a716-446655440000",
            "Ctrl-C stops",
        ] {
            assert!(view.contains(part), "{part:?} is missing in\n{view}");
        }
    }

    #[test]
    fn the_view_fits_a_small_terminal() {
        let mut board = board();
        for _ in 0..20 {
            board.note(ended(Outcome::Failed, Some(&"long ".repeat(50))));
        }
        board.stats = Some(Stats::default());
        let view = board.render(moment(), Paint::default(), size(80, 24));
        let widest = view.lines().map(text::width).max().unwrap_or(0);
        assert!(widest <= 80, "{widest}\n{view}");
        assert_eq!(view.lines().count(), 24, "{view}");
        let view = board.render(moment(), Paint::default(), size(80, 10));
        assert!(view.lines().count() < 24, "{view}");
    }

    #[test]
    fn the_rate_forgets_what_is_long_ago() {
        let mut board = board();
        board.note(ended(Outcome::Completed, None));
        let later = Moment {
            now: "2026-01-01T10:00:30Z".parse().unwrap(),
            elapsed: Duration::from_secs(34),
            ..moment()
        };
        assert!(board.rate(later).contains("0.0 tasks/s"));
        assert!(board.completions.is_empty());
    }
}
