//! The live view: task counts, recent attempts and commands to try next.

use std::collections::VecDeque;
use std::time::Duration;

use qo::{AttemptOutcome, Stats, Status, TaskId, Timestamp};

use super::hints::Hints;
use crate::commands::activity::EndedAttempt;
use crate::commands::worker::{outcome_word, retry_at, retry_text};
use crate::output::style::{BOLD, CYAN, DIM, Paint, of_status};
use crate::output::table::{Cell, Table};
use crate::output::terminal::Size;
use crate::output::{text, time};

/// Maximum and minimum number of recent attempts to show, depending on the height of the terminal.
const RECENT_MAX: usize = 15;
const RECENT_MIN: usize = 2;

/// Maximum number of queues to show.
const QUEUES_MAX: usize = 5;

/// The time over which the rate is averaged.
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// The statuses with a column, in the order of the task's life cycle.
const STATUSES: [(Status, &str); 5] = [
    (Status::Pending, "PENDING"),
    (Status::Running, "RUNNING"),
    (Status::Completed, "COMPLETED"),
    (Status::Failed, "FAILED"),
    (Status::Cancelled, "CANCELLED"),
];

/// The live view.
#[derive(Debug)]
pub(super) struct LiveView {
    pub(super) store: String,
    pub(super) worker: String,
    pub(super) slots: usize,
    pub(super) hints: Hints,
    pub(super) stats: Option<Stats>,
    recent: VecDeque<EndedAttempt>,
    completions: VecDeque<Timestamp>,
    /// The first completed and the first failed task. They never change, so the suggested commands can be typed.
    completed: Option<TaskId>,
    failed: Option<TaskId>,
}

/// Values that change between two renderings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Snapshot {
    pub(super) now: Timestamp,
    pub(super) elapsed: Duration,
    pub(super) running: usize,
    pub(super) submitted: u64,
    pub(super) per_second: f64,
    pub(super) samples_left: Option<Duration>,
}

impl LiveView {
    pub(super) fn new(store: String, worker: String, slots: usize, hints: Hints) -> Self {
        Self {
            store,
            worker,
            slots,
            hints,
            stats: None,
            recent: VecDeque::new(),
            completions: VecDeque::new(),
            completed: None,
            failed: None,
        }
    }

    /// Adds an attempt that ended.
    pub(super) fn add(&mut self, ended: EndedAttempt) {
        match ended.outcome {
            AttemptOutcome::Completed => {
                self.completions.push_back(ended.at);
                self.completed.get_or_insert(ended.id);
            }
            AttemptOutcome::Failed => {
                self.failed.get_or_insert(ended.id);
            }
            _ => {}
        }
        self.recent.push_front(ended);
        self.recent.truncate(RECENT_MAX);
    }

    /// Renders the view for a terminal of this size.
    pub(super) fn render(&mut self, snapshot: Snapshot, paint: Paint, size: Size) -> String {
        let mut above = String::new();
        let elapsed = time::duration(Duration::from_secs(snapshot.elapsed.as_secs()));
        let heading = format!(
            "{}  {}  {}",
            paint.paint(BOLD, "qo dev"),
            self.store,
            paint.paint(DIM, &format!("running for {elapsed}")),
        );
        push(&mut above, &heading);
        push(&mut above, "");
        above.push_str(&self.counts(paint, size.columns));
        push(&mut above, "");
        push(&mut above, &self.rate(snapshot));
        push(&mut above, &samples(snapshot));
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
        below.push_str(&paint.paint(DIM, "Press Ctrl-C to stop. The tasks are kept."));

        // One line holds the table's headings.
        let used = above.lines().count() + below.lines().count() + 1;
        let room = size.rows.saturating_sub(used).max(RECENT_MIN);
        let recent = if self.recent.is_empty() {
            format!("{}\n", paint.paint(DIM, "no attempt has finished yet"))
        } else {
            self.recent_table(snapshot.now, paint, size.columns, room)
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
            shown.push_str("There are more tasks; the counts are partial.\n");
        }
        shown
    }

    fn rate(&mut self, snapshot: Snapshot) -> String {
        let millis = u64::try_from(RATE_WINDOW.as_millis()).unwrap_or(u64::MAX);
        let since = snapshot.now.minus_millis(millis);
        while self.completions.front().is_some_and(|at| *at < since) {
            self.completions.pop_front();
        }
        let window = RATE_WINDOW.min(snapshot.elapsed).as_secs_f64().max(1.0);
        #[expect(clippy::cast_precision_loss, reason = "a count of a few seconds")]
        let rate = self.completions.len() as f64 / window;
        format!(
            "worker {}: {} of {} busy, {rate:.1} tasks/s completed",
            self.worker,
            snapshot.running,
            text::count(self.slots as u64, "slot"),
        )
    }

    fn recent_table(&self, now: Timestamp, paint: Paint, columns: usize, rows: usize) -> String {
        let mut table = Table::new()
            .column("ENDED")
            .column("TYPE")
            .column("OUTCOME")
            .number("ATTEMPT")
            .number("TOOK")
            .flexible("");
        for ended in self.recent.iter().take(rows) {
            let (word, style) = outcome_word(ended.outcome);
            let remark = match (retry_at(ended.outcome), &ended.error) {
                (Some(at), _) => retry_text(at, now),
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

fn samples(snapshot: Snapshot) -> String {
    let submitted = text::count(snapshot.submitted, "sample task");
    match snapshot.samples_left {
        Some(left) => format!(
            "{submitted} submitted, {} per second for another {}",
            snapshot.per_second,
            time::duration(Duration::from_secs(left.as_secs())),
        ),
        None => format!("{submitted} submitted; the worker keeps running, submit your own tasks"),
    }
}

fn push(view: &mut String, line: &str) {
    view.push_str(line);
    view.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(outcome: AttemptOutcome, error: Option<&str>) -> EndedAttempt {
        EndedAttempt {
            task_type: "demo.flaky".parse().unwrap(),
            attempt: 1,
            ..EndedAttempt::example(outcome, error)
        }
    }

    fn snapshot() -> Snapshot {
        Snapshot {
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

    fn live_view() -> LiveView {
        let hints = Hints::new("qo", None, true);
        LiveView::new("SQLite queue.db".into(), "w1".into(), 4, hints)
    }

    #[test]
    fn the_view_shows_counts_rate_recent_attempts_and_next_steps() {
        let mut view = live_view();
        let mut stats = Stats::default();
        let queue = stats.queues.entry(qo::QueueName::default()).or_default();
        queue.statuses.insert(Status::Completed, 1_234);
        view.stats = Some(stats);
        view.add(ended(AttemptOutcome::Completed, None));
        let at = "2026-01-01T10:00:03Z".parse().unwrap();
        view.add(ended(AttemptOutcome::Retried { at }, Some("no luck")));
        view.add(ended(AttemptOutcome::Failed, Some("no luck")));
        let text = view.render(snapshot(), Paint::default(), size(100, 40));
        for part in [
            "qo dev  SQLite queue.db  running for 4 s",
            "1,234",
            "worker w1: 2 of 4 slots busy, 0.2 tasks/s completed",
            "12 sample tasks submitted, 4 per second for another 55 s",
            "retry in 2.0 s",
            "no luck",
            "qo submit --type demo.greet",
            "qo history 550e8400-e29b-41d4-a716-446655440000",
            "Press Ctrl-C to stop",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
    }

    #[test]
    fn the_view_fits_a_small_terminal() {
        let mut view = live_view();
        for _ in 0..20 {
            view.add(ended(AttemptOutcome::Failed, Some(&"long ".repeat(50))));
        }
        view.stats = Some(Stats::default());
        let shown = view.render(snapshot(), Paint::default(), size(80, 24));
        let widest = shown.lines().map(text::width).max().unwrap_or(0);
        assert!(widest <= 80, "{widest}\n{shown}");
        assert_eq!(shown.lines().count(), 24, "{shown}");
        let shown = view.render(snapshot(), Paint::default(), size(80, 10));
        assert!(shown.lines().count() < 24, "{shown}");
    }

    #[test]
    fn old_completions_do_not_count_for_the_rate() {
        let mut view = live_view();
        view.add(ended(AttemptOutcome::Completed, None));
        let later = Snapshot {
            now: "2026-01-01T10:00:30Z".parse().unwrap(),
            elapsed: Duration::from_secs(34),
            ..snapshot()
        };
        assert!(view.rate(later).contains("0.0 tasks/s"));
        assert!(view.completions.is_empty());
    }
}
