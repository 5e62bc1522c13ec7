use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

/// The vectors that the dashboard shares.
#[derive(Deserialize)]
struct Vectors {
    now: Timestamp,
    tasks: BTreeMap<String, Task>,
    searches: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    search: String,
    /// The names of the tasks that match; absent if the search is invalid.
    matches: Option<Vec<String>>,
}

fn vectors() -> Vectors {
    let text = include_str!("../../../qo-ui/ui/tests/vectors/searches.json");
    serde_json::from_str(text).unwrap()
}

#[test]
fn searches_select_the_tasks_of_the_vectors() {
    let vectors = vectors();
    assert!(vectors.searches.len() > 80);
    for Vector { search, matches } in &vectors.searches {
        let parsed = search.parse::<Search>();
        let Some(expected) = matches else {
            assert!(parsed.is_err(), "{search}: {parsed:?}");
            continue;
        };
        let found = parsed
            .unwrap_or_else(|error| panic!("{search}: {error}"))
            .at(vectors.now);
        let names = |matches: &dyn Fn(&Task) -> bool| {
            let mut names: Vec<_> = vectors
                .tasks
                .iter()
                .filter(|(_, task)| matches(task))
                .map(|(name, _)| name.clone())
                .collect();
            names.sort();
            names
        };
        let mut expected = expected.clone();
        expected.sort();
        assert_eq!(names(&|task| found.matches(task)), expected, "{search}");
        // What the filter takes over selects the same tasks.
        let filter = TaskFilter {
            statuses: Status::ALL.to_vec(),
            ..TaskFilter::default()
        };
        let filter = filter.with_search(found.clone());
        assert_eq!(names(&|task| filter.matches(task)), expected, "{search}");
        // The text of the search means the same later.
        let again: Search = found.to_string().parse().unwrap();
        let later = again.at(vectors.now);
        assert_eq!(later.to_string(), found.to_string());
        assert_eq!(names(&|task| later.matches(task)), expected, "{search}");
    }
}

#[test]
fn ages_become_times_so_that_all_pages_of_a_list_agree() {
    let now = Timestamp::from_millis(1_763_467_200_000);
    let search = "since:2h".parse::<Search>().unwrap().at(now);
    assert_eq!(
        search.to_string(),
        format!("since:{}", now.minus_millis(7_200_000))
    );
}

#[test]
fn a_filter_takes_over_what_it_can_say_itself() {
    let now = Timestamp::from_millis(1_763_467_200_000);
    let filter = |text: &str| {
        let search = text.parse::<Search>().unwrap().at(now);
        TaskFilter::default().with_search(search)
    };
    let one = filter("type:a queue:q tag:t status:failed,due id:7f since:1h until:1m");
    assert_eq!(one.task_type, Some("a".parse().unwrap()));
    assert_eq!(one.queue, Some("q".parse().unwrap()));
    assert_eq!(one.tag, Some("t".parse().unwrap()));
    assert_eq!(one.shard, Some("7".parse().unwrap()));
    assert_eq!(one.statuses, [Status::Failed, Status::Pending]);
    assert_eq!(one.since, Some(now.minus_millis(3_600_000)));
    assert_eq!(one.until, Some(now.minus_millis(60_000)));
    // Alternatives, beginnings and exclusions are conditions of the search alone.
    for text in [
        "type:a,b",
        "type:a*",
        "-type:a",
        "type:a or queue:q",
        "type:not/a/name",
    ] {
        let filter = filter(text);
        assert_eq!((filter.task_type, filter.queue), (None, None), "{text}");
        assert!(filter.statuses.is_empty(), "{text}");
    }
    assert_eq!(
        filter("status:archived or status:failed type:a").statuses,
        [Status::Archived, Status::Failed]
    );
}

#[test]
fn what_a_filter_already_says_is_kept() {
    let now = Timestamp::from_millis(1_763_467_200_000);
    let filter = TaskFilter {
        queue: Some("mine".parse().unwrap()),
        statuses: vec![Status::Failed],
        since: Some(now),
        until: Some(now),
        ..TaskFilter::default()
    };
    let search: Search = "queue:other status:completed since:1h until:2025-01-01"
        .parse()
        .unwrap();
    let narrowed = filter.clone().with_search(search.at(now));
    assert_eq!(narrowed.queue, filter.queue);
    assert_eq!(narrowed.statuses, filter.statuses);
    assert_eq!(narrowed.since, Some(now));
    assert_eq!(
        narrowed.until,
        Some("2025-01-01T00:00:00Z".parse().unwrap())
    );
}

#[test]
fn a_filter_within_queues_and_types_selects_nothing_else_whatever_its_search_is() {
    let vectors = vectors();
    let queues: BTreeSet<QueueName> = vectors
        .tasks
        .values()
        .map(|task| task.queue.clone())
        .take(2)
        .collect();
    let types: BTreeSet<TaskType> = vectors
        .tasks
        .values()
        .map(|task| task.task_type.clone())
        .take(3)
        .collect();
    let (no_queues, no_types) = (BTreeSet::new(), BTreeSet::new());
    let all = TaskFilter {
        statuses: Status::ALL.to_vec(),
        ..TaskFilter::default()
    };
    let searches = vectors.searches.iter().filter_map(|vector| {
        let search = vector.search.parse::<Search>().ok()?;
        Some(all.clone().with_search(search.at(vectors.now)))
    });
    let mut found = 0;
    for filter in searches.chain([all.clone()]) {
        for (queues, types) in [
            (&queues, &types),
            (&queues, &no_types),
            (&no_queues, &types),
            (&no_queues, &no_types),
        ] {
            let within = filter.clone().within(queues, types);
            for task in vectors.tasks.values() {
                let is_within = (queues.is_empty() || queues.contains(&task.queue))
                    && (types.is_empty() || types.contains(&task.task_type));
                let expected = is_within && filter.matches(task);
                assert_eq!(within.matches(task), expected, "{filter:?}");
                found += usize::from(expected);
            }
        }
    }
    assert!(found > 100, "{found}");
    let names: BTreeSet<QueueName> = ["a", "b"].map(|name| name.parse().unwrap()).into();
    let within = TaskFilter::default().within(&names, &no_types);
    assert_eq!(within.search.unwrap().to_string(), "queue:a,b");
}
