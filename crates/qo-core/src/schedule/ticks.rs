//! The times of a schedule.
//!
//! A cron line is read in its time zone. On the day on which clocks skip an hour, a line with a fixed hour inside the gap fires right
//! after the gap, and a line for every hour or minute has no ticks in it. On the day on which clocks repeat an hour, a line with a fixed
//! hour fires once, in the first of the two, and a line for every hour or minute fires in both. This is what cron has done since Vixie.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds};

use super::spec::{InvalidSchedule, ScheduleSpec};
use crate::time::Timestamp;

/// How many wrong ticks in a row are skipped.
const GAPS_MAX: usize = 4;

/// The times of a schedule, in order.
#[derive(Debug, Clone)]
pub struct Ticks {
    rule: Rule,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

#[derive(Debug, Clone)]
enum Rule {
    Cron(Box<Cron>, Tz),
    /// Every so many milliseconds from the origin on.
    Every {
        origin: i64,
        millis: i64,
    },
    /// Sorted.
    At(Vec<Timestamp>),
}

impl Ticks {
    pub(super) fn of(spec: &ScheduleSpec) -> Result<Self, InvalidSchedule> {
        let rule = if let Some(line) = &spec.cron {
            let parser = CronParser::builder().seconds(Seconds::Optional).build();
            let cron = parser.parse(line).map_err(|error| InvalidSchedule::Cron {
                line: line.chars().take(64).collect(),
                problem: cron_problem(line, &error),
            })?;
            Rule::Cron(Box::new(cron), zone(spec.time_zone.as_deref())?)
        } else if let Some(millis) = spec.every_ms {
            Rule::Every {
                origin: spec.start.unwrap_or(Timestamp::MIN).as_millis(),
                millis: i64::try_from(millis).unwrap_or(i64::MAX).max(1),
            }
        } else {
            let mut times = spec.at.clone();
            times.sort_unstable();
            times.dedup();
            Rule::At(times)
        };
        Ok(Self {
            rule,
            start: spec.start,
            end: spec.end,
        })
    }

    /// The first tick after `time`.
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let before_start = self.start.map(|start| start.minus_millis(1));
        let time = before_start.map_or(time, |start| time.max(start));
        let next = match &self.rule {
            Rule::Cron(cron, zone) => {
                // Cron lines have whole seconds, and the next one after a fraction is that after its second.
                let find = |second| {
                    let from = DateTime::<Utc>::from_timestamp(second, 0)?.with_timezone(zone);
                    let next = cron.find_next_occurrence(&from, false).ok()?;
                    Some(next.timestamp())
                };
                let mut next = find(time.as_millis().div_euclid(1_000))?;
                // On the day before clocks skip midnight, the library takes the end of the gap for a tick. Just before it, it does not.
                for _ in 0..GAPS_MAX {
                    let again = find(next.saturating_sub(1))?;
                    if again == next {
                        break;
                    }
                    next = again;
                }
                Timestamp::from_millis(next.saturating_mul(1_000))
            }
            Rule::Every { origin, millis } => {
                let elapsed = time.as_millis().saturating_sub(*origin);
                let steps = elapsed.div_euclid(*millis).saturating_add(1);
                let at = origin.saturating_add(steps.saturating_mul(*millis));
                Timestamp::from_millis(at)
            }
            Rule::At(times) => {
                let index = times.partition_point(|at| *at <= time);
                *times.get(index)?
            }
        };
        // A tick that is not later would be fired forever.
        (next > time && self.end.is_none_or(|end| next <= end)).then_some(next)
    }

    /// The ticks after `after` up to and including `until`, at most `limit`.
    pub fn between(&self, after: Timestamp, until: Timestamp, limit: usize) -> Vec<Timestamp> {
        let next = |tick: &Timestamp| self.after(*tick);
        std::iter::successors(self.after(after), next)
            .take_while(|tick| *tick <= until)
            .take(limit)
            .collect()
    }
}

/// What is wrong with a cron line. The library names neither the fields that it found nor a problem without its own type names.
fn cron_problem(line: &str, error: &CronError) -> String {
    let fields = line.split_whitespace().count();
    if !(5..=7).contains(&fields) && !line.starts_with('@') {
        let s = if fields == 1 { "" } else { "s" };
        return format!("it has {fields} field{s}");
    }
    let text = match error {
        CronError::InvalidPattern(text)
        | CronError::IllegalCharacters(text)
        | CronError::ComponentError(text) => text.clone(),
        other => other.to_string(),
    };
    text.trim_end_matches('.').to_owned()
}

fn zone(name: Option<&str>) -> Result<Tz, InvalidSchedule> {
    let name = name.unwrap_or("UTC");
    name.parse().map_err(|_| InvalidSchedule::TimeZone {
        name: name.chars().take(64).collect(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::spec::TaskTemplate;
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn template() -> TaskTemplate {
        TaskTemplate::new("report".parse().unwrap())
    }

    fn cron(line: &str, zone: &str) -> Ticks {
        let mut spec = ScheduleSpec::cron(line, template());
        spec.time_zone = Some(zone.to_owned());
        spec.ticks().unwrap()
    }

    fn texts(ticks: &Ticks, after: &str, until: &str) -> Vec<String> {
        let ticks = ticks.between(time(after), time(until), 1_000);
        ticks.iter().map(ToString::to_string).collect()
    }

    /// The ticks in a range of days are these, given without their milliseconds.
    fn assert_ticks(ticks: &Ticks, after: &str, until: &str, expected: &[&str]) {
        let expected: Vec<_> = expected.iter().map(|at| format!("{at}.000Z")).collect();
        assert_eq!(texts(ticks, after, until), expected);
    }

    #[test]
    fn a_cron_line_is_read_in_its_time_zone() {
        let ticks = cron("30 2 * * *", "Europe/Berlin");
        let expected = ["2026-01-01T01:30:00", "2026-01-02T01:30:00"];
        let until = "2026-01-03T00:00:00Z";
        assert_ticks(&ticks, "2026-01-01T00:00:00Z", until, &expected);
        let seconds = cron("*/20 0 12 * * *", "UTC");
        let expected = [0, 20, 40].map(|second| format!("2026-01-01T12:00:{second:02}"));
        let expected = expected.each_ref().map(String::as_str);
        let until = "2026-01-01T12:00:40Z";
        assert_ticks(&seconds, "2026-01-01T11:59:59.500Z", until, &expected);
    }

    /// Every hour after `from` up to 02:00 UTC of this day has one tick.
    fn assert_hourly(from: &str, day: &str) {
        let hourly = cron("0 * * * *", "Europe/Berlin");
        let expected = ["00", "01", "02"].map(|hour| format!("{day}T{hour}:00:00.000Z"));
        assert_eq!(texts(&hourly, from, &format!("{day}T02:00:00Z")), expected);
    }

    /// On 29 March 2026 the clocks of Berlin went from 02:00 to 03:00, which was 01:00 UTC.
    #[test]
    fn an_hour_that_is_skipped() {
        let fixed = cron("30 2 * * *", "Europe/Berlin");
        assert_eq!(
            texts(&fixed, "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z"),
            [
                "2026-03-28T01:30:00.000Z",
                "2026-03-29T01:00:00.000Z",
                "2026-03-30T00:30:00.000Z"
            ],
            "a fixed time inside the gap fires right after it"
        );
        assert_hourly("2026-03-28T23:30:00Z", "2026-03-29");
        let minutes = cron("*/15 2 * * *", "Europe/Berlin");
        assert!(texts(&minutes, "2026-03-29T00:00:00Z", "2026-03-29T23:00:00Z").len() <= 1);
    }

    /// On 25 October 2026 the clocks of Berlin went from 03:00 back to 02:00, which was 01:00 UTC.
    #[test]
    fn an_hour_that_is_repeated() {
        let fixed = cron("30 2 * * *", "Europe/Berlin");
        assert_eq!(
            texts(&fixed, "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z"),
            ["2026-10-25T00:30:00.000Z", "2026-10-26T01:30:00.000Z"],
            "a fixed time fires in the first of the two hours only"
        );
        assert_hourly("2026-10-24T23:30:00Z", "2026-10-25");
        let sydney = cron("30 2 * * *", "Australia/Sydney");
        assert_eq!(
            texts(&sydney, "2026-04-04T00:00:00Z", "2026-04-05T23:00:00Z").len(),
            2,
            "one tick on the day that is an hour longer"
        );
    }

    #[test]
    fn intervals_are_counted_from_the_start() {
        let mut spec = ScheduleSpec::every_ms(90_000, template());
        spec.start = Some(time("2026-01-01T00:00:10Z"));
        spec.end = Some(time("2026-01-01T00:03:10Z"));
        let ticks = spec.ticks().unwrap();
        assert_eq!(
            texts(&ticks, "2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z"),
            [
                "2026-01-01T00:00:10.000Z",
                "2026-01-01T00:01:40.000Z",
                "2026-01-01T00:03:10.000Z"
            ]
        );
    }

    #[test]
    fn the_ticks_of_a_cron_line_lie_between_its_start_and_its_end() {
        let all_ticks = |start: &str, end: &str, expected: &[&str]| {
            let mut spec = ScheduleSpec::cron("*/20 * * * * *", template());
            spec.start = Some(time(start));
            spec.end = Some(time(end));
            let ticks = spec.ticks().unwrap();
            let (after, until) = ("2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z");
            assert_ticks(&ticks, after, until, expected);
        };
        // A tick at the start and one at the end belong to it.
        all_ticks(
            "2026-01-01T00:00:20Z",
            "2026-01-01T00:01:00Z",
            &[
                "2026-01-01T00:00:20",
                "2026-01-01T00:00:40",
                "2026-01-01T00:01:00",
            ],
        );
        // One that is a millisecond outside does not.
        let (start, end) = ("2026-01-01T00:00:20.001Z", "2026-01-01T00:00:59.999Z");
        all_ticks(start, end, &["2026-01-01T00:00:40"]);
    }

    #[test]
    fn listed_times_before_the_start_and_after_the_end_are_left_out() {
        let times = [1, 2, 3, 4, 5].map(|day| time(&format!("2026-01-0{day}T00:00:00Z")));
        let mut spec = ScheduleSpec::at(times.to_vec(), template());
        spec.start = Some(times[1]);
        spec.end = Some(times[3]);
        let all = |spec: &ScheduleSpec| spec.ticks().unwrap().between(Timestamp::MIN, times[4], 9);
        assert_eq!(all(&spec), times[1..=3]);
        spec.start = Some(times[1].plus_millis(1));
        spec.end = Some(times[3].minus_millis(1));
        assert_eq!(all(&spec), [times[2]]);
    }

    /// On 4 November 2018 the clocks of São Paulo went from 00:00 to 01:00, which was 03:00 UTC.
    #[test]
    fn a_midnight_that_is_skipped() {
        let fixed = cron("30 2 * * *", "America/Sao_Paulo");
        assert_eq!(
            texts(&fixed, "2018-11-03T05:43:48Z", "2018-11-05T12:00:00Z"),
            ["2018-11-04T04:30:00.000Z", "2018-11-05T04:30:00.000Z"]
        );
    }

    #[test]
    fn listed_times_are_sorted_and_distinct() {
        let times = [
            "2026-03-01T00:00:00Z",
            "2026-01-01T00:00:00Z",
            "2026-03-01T00:00:00Z",
        ];
        let times = times.iter().map(|text| time(text)).collect();
        let ticks = ScheduleSpec::at(times, template()).ticks().unwrap();
        assert_eq!(
            texts(&ticks, "2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z"),
            ["2026-01-01T00:00:00.000Z", "2026-03-01T00:00:00.000Z"]
        );
    }

    #[test]
    fn a_line_that_never_matches_has_no_ticks() {
        let never = ScheduleSpec::cron("0 0 30 2 *", template());
        // Some parsers refuse it, others find nothing.
        if let Ok(ticks) = never.ticks() {
            assert_eq!(ticks.after(time("2026-01-01T00:00:00Z")), None);
        }
    }

    proptest! {
        #[test]
        fn ticks_always_move_forward(millis in 0_i64..4_000_000_000_000, which in 0_usize..6) {
            let lines = ["* * * * *", "*/7 * * * * *", "30 2 * * *", "0 0 1 * *", "0 12 * * 1#1", "15,45 1-3 * * *"];
            let zones = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo"];
            let ticks = cron(lines[which], zones[(which + usize::try_from(millis % 6).unwrap()) % 6]);
            let mut at = Timestamp::from_millis(millis);
            for _ in 0..5 {
                let next = ticks.after(at).unwrap();
                prop_assert!(next > at);
                // Nothing lies between: asking from just before the next tick gives the same one.
                prop_assert_eq!(ticks.after(next.minus_millis(1)), Some(next));
                at = next;
            }
        }
    }
}
