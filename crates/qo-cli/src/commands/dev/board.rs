//! The live view: what there is in the queue, what just ended, and what to try next.

use std::collections::VecDeque;
use std::time::Duration;

use qo::{Outcome, Stats, Status, TaskId, Timestamp};

use super::hints::Hints;
use crate::commands::activity::Ended;
use crate::commands::worker::{again, again_at, word};
use crate::output::style::{BOLD, CYAN, DIM, Paint, of_status};
use crate::output::table::{Cell, Table};
use crate::output::{text, time};

/// How many ended attempts are shown.
const SHOWN: usize = 8;

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
    last_failed: Option<TaskId>,
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
            last_failed: None,
        }
    }

    /// Takes note of an attempt that ended.
    pub(super) fn note(&mut self, ended: Ended) {
        match ended.outcome {
            Outcome::Completed => self.completions.push_back(ended.at),
            Outcome::Failed => self.last_failed = Some(ended.id),
            _ => {}
        }
        self.ended.push_front(ended);
        self.ended.truncate(SHOWN);
    }

    /// The view as text. `columns` is the width of the terminal.
    pub(super) fn render(&mut self, moment: Moment, paint: Paint, columns: usize) -> String {
        let mut view = String::new();
        let heading = format!(
            "{}  {}  {}",
            paint.paint(BOLD, "qo dev"),
            self.store,
            paint.paint(DIM, &format!("for {}", time::duration(moment.elapsed))),
        );
        push(&mut view, &heading);
        push(&mut view, "");
        view.push_str(&self.counts(paint, columns));
        push(&mut view, "");
        push(&mut view, &self.rate(moment));
        push(&mut view, &samples(moment));
        push(&mut view, "");
        if self.ended.is_empty() {
            push(&mut view, &paint.paint(DIM, "nothing has ended yet"));
        } else {
            view.push_str(&self.recent(moment.now, paint, columns));
        }
        push(&mut view, "");
        for (index, line) in self.next_steps().iter().enumerate() {
            let style = if index == 0 { BOLD } else { CYAN };
            push(&mut view, &paint.paint(style, &text::cut(line, columns)));
        }
        push(&mut view, "");
        view.push_str(&paint.paint(DIM, "Ctrl-C stops; the tasks stay"));
        view
    }

    fn counts(&self, paint: Paint, columns: usize) -> String {
        let Some(stats) = &self.stats else {
            return format!("{}\n", paint.paint(DIM, "counting the tasks ..."));
        };
        let mut table = Table::new().column("QUEUE");
        for (_, heading) in STATUSES {
            table = table.number(heading);
        }
        for (name, queue) in &stats.queues {
            let mut cells = vec![Cell::new(name.as_str())];
            for (status, _) in STATUSES {
                let number = queue.statuses.get(&status).copied().unwrap_or(0);
                let style = if number == 0 { DIM } else { of_status(status) };
                cells.push(Cell::styled(text::grouped(number), style));
            }
            table.row(cells);
        }
        let mut shown = table.render(paint, Some(columns));
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

    fn recent(&self, now: Timestamp, paint: Paint, columns: usize) -> String {
        let mut table = Table::new()
            .column("ENDED")
            .column("TYPE")
            .column("OUTCOME")
            .number("ATTEMPT")
            .number("TOOK")
            .flexible("");
        for ended in &self.ended {
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

    fn next_steps(&self) -> Vec<String> {
        let any = self
            .ended
            .iter()
            .find(|ended| ended.outcome == Outcome::Completed);
        self.hints
            .next_steps(any.map(|ended| ended.id), self.last_failed)
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
        let view = board.render(moment(), Paint::default(), 100);
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
        let view = board.render(moment(), Paint::default(), 80);
        let widest = view.lines().map(text::width).max().unwrap_or(0);
        assert!(widest <= 80, "{widest}\n{view}");
        assert!(view.lines().count() <= 24, "{}", view.lines().count());
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
