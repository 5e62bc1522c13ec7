//! The parser of searches.

use std::fmt::Display;

use qo_core::{Status, Timestamp};

use super::{
    Condition, Field, InvalidTaskSearch, Moment, Pattern, SEARCH_ALTERNATIVES_MAX,
    SEARCH_EXPRESSION_MAX_BYTES, Search, StatusWord,
};

/// The largest number of an age.
const AGE_MAX_DIGITS: usize = 6;

fn invalid<T>(problem: impl Display) -> Result<T, InvalidTaskSearch> {
    Err(InvalidTaskSearch {
        problem: problem.to_string(),
    })
}

/// One part of a search, up to a space outside of quotation marks.
struct Part<'a> {
    whole: &'a str,
    is_excluded: bool,
    /// Absent for a bare word.
    field: Option<String>,
    value: &'a str,
    is_quoted: bool,
}

impl Part<'_> {
    /// The field as it was written, with its minus.
    fn name(&self) -> String {
        let minus = if self.is_excluded { "-" } else { "" };
        format!("{minus}{}", self.field.as_deref().unwrap_or("id"))
    }
}

/// Takes the first part off a text that starts with one.
fn take_part(text: &str) -> (Part<'_>, &str) {
    let word_end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (is_excluded, named) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    let field = named
        .split_once(':')
        .filter(|(field, _)| !field.is_empty() && field.chars().all(is_letter));
    let Some((field, rest)) = field else {
        let part = Part {
            whole: &text[..word_end],
            is_excluded: false,
            field: None,
            value: &text[..word_end],
            is_quoted: false,
        };
        return (part, &text[word_end..]);
    };
    let quoted = rest
        .strip_prefix('"')
        .and_then(|rest| rest.split_once('"'))
        .filter(|(_, rest)| rest.is_empty() || rest.starts_with(char::is_whitespace));
    let (value, rest) = match quoted {
        Some((value, rest)) => (value, rest),
        None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
    };
    let part = Part {
        whole: &text[..text.len() - rest.len()],
        is_excluded,
        field: Some(field.to_ascii_lowercase()),
        value,
        is_quoted: quoted.is_some(),
    };
    (part, rest)
}

pub(super) fn search(text: &str) -> Result<Search, InvalidTaskSearch> {
    if text.len() > SEARCH_EXPRESSION_MAX_BYTES {
        return invalid(format!(
            "a search has at most {SEARCH_EXPRESSION_MAX_BYTES} bytes"
        ));
    }
    let mut alternatives = Vec::new();
    let mut conditions = Vec::new();
    let mut given = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (part, after) = take_part(rest);
        rest = after.trim_start();
        if part.field.is_none() && part.value.eq_ignore_ascii_case("or") {
            alternatives.push(finished(std::mem::take(&mut conditions))?);
            given.clear();
            continue;
        }
        let name = part.name();
        conditions.push(condition(&part, &name)?);
        if given.contains(&name) {
            let is_list = matches!(
                conditions.last(),
                Some(Condition::Name { .. } | Condition::Status { .. })
            );
            return invalid(if is_list {
                format!("{name}: is given twice; separate several values with commas")
            } else {
                format!("{name}: is given twice; a search has one value for it")
            });
        }
        given.push(name);
    }
    alternatives.push(finished(conditions)?);
    if alternatives.len() > SEARCH_ALTERNATIVES_MAX {
        return invalid(format!(
            "a search has at most {SEARCH_ALTERNATIVES_MAX} alternatives"
        ));
    }
    let names_status = |conditions: &Vec<Condition>| {
        conditions
            .iter()
            .any(|condition| condition.statuses().is_some())
    };
    let with_status = alternatives.iter().filter(|one| names_status(one)).count();
    if with_status != 0 && with_status != alternatives.len() {
        return invalid("status: must be in every alternative, or in none");
    }
    Ok(Search { alternatives })
}

/// Checks the conditions of an alternative against each other.
fn finished(conditions: Vec<Condition>) -> Result<Vec<Condition>, InvalidTaskSearch> {
    if conditions.is_empty() {
        return invalid("a search needs a condition, also before and after or");
    }
    let (mut id, mut shard, mut since, mut until) = (None, None, None, None);
    for condition in &conditions {
        match condition {
            Condition::Id(beginning) => id = Some(beginning),
            Condition::Shard(one) => shard = Some(one.to_string()),
            Condition::Since(moment) => since = Some(*moment),
            Condition::Until(moment) => until = Some(*moment),
            _ => {}
        }
    }
    if let (Some(id), Some(shard)) = (id, &shard)
        && !id.starts_with(shard.as_str())
    {
        return invalid(format!("no id that starts with {id} is in shard {shard}"));
    }
    let is_empty = match (since, until) {
        (Some(Moment::At(since)), Some(Moment::At(until))) => since >= until,
        (Some(Moment::AgoMs(since)), Some(Moment::AgoMs(until))) => since <= until,
        _ => false,
    };
    if is_empty {
        return invalid("since: must be before until:");
    }
    Ok(conditions)
}

const FIELDS: &str = "type: queue: tag: worker: status: id: shard: text: since: until:";

fn condition(part: &Part<'_>, name: &str) -> Result<Condition, InvalidTaskSearch> {
    let value = part.value;
    let field = part.field.as_deref().unwrap_or("id");
    let named = Field::ALL.into_iter().find(|one| one.as_str() == field);
    let is_known =
        named.is_some() || ["status", "id", "shard", "text", "since", "until"].contains(&field);
    if !is_known {
        return invalid(format!("unknown field {field}:; use {FIELDS}"));
    }
    if part.is_excluded && named.is_none() && field != "status" {
        return invalid(format!(
            "{} is not supported: a search can exclude only type: queue: tag: worker: status:",
            part.whole
        ));
    }
    if value.is_empty() {
        return invalid(format!("{name}: needs a value"));
    }
    if !part.is_quoted && value.contains('"') {
        return invalid(format!(
            "{} has a quotation mark without its counterpart",
            part.whole
        ));
    }
    if let Some(field) = named {
        return Ok(Condition::Name {
            field,
            patterns: patterns(part, field)?,
            is_excluded: part.is_excluded,
        });
    }
    match field {
        "status" => Ok(Condition::Status {
            words: status_words(value)?,
            is_excluded: part.is_excluded,
        }),
        "id" => id_beginning(value),
        "shard" => match value.parse() {
            Ok(shard) => Ok(Condition::Shard(shard)),
            Err(_) => invalid("a shard is one hexadecimal digit"),
        },
        "text" => match value.parse() {
            Ok(text) => Ok(Condition::Text(text)),
            Err(error) => invalid(error),
        },
        "since" => Ok(Condition::Since(moment(value)?)),
        _ => Ok(Condition::Until(moment(value)?)),
    }
}

fn id_beginning(value: &str) -> Result<Condition, InvalidTaskSearch> {
    let id = value.to_ascii_lowercase();
    let mut letters = id.bytes();
    let starts = letters.next().is_some_and(|byte| byte.is_ascii_hexdigit());
    let is_id = starts && letters.all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if !is_id || id.len() > 36 {
        return invalid(format!(
            "{value} is not the beginning of an id; use type:, queue:, tag:, worker: or status:"
        ));
    }
    Ok(Condition::Id(id))
}

fn status_words(value: &str) -> Result<Vec<StatusWord>, InvalidTaskSearch> {
    let mut words = Vec::new();
    for text in value.to_ascii_lowercase().split(',') {
        let word = match text {
            "due" => StatusWord::Due,
            "scheduled" => StatusWord::Scheduled,
            _ => match text.parse::<Status>() {
                Ok(status) => StatusWord::Is(status),
                Err(_) => {
                    return invalid(format!(
                        "{text} is not a status; use pending, running, completed, failed, cancelled, archived, due, scheduled"
                    ));
                }
            },
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    Ok(words)
}

fn patterns(part: &Part<'_>, field: Field) -> Result<Vec<Pattern>, InvalidTaskSearch> {
    if part.is_quoted {
        return Ok(vec![Pattern::Is(part.value.to_owned())]);
    }
    let mut patterns = Vec::new();
    for name in part.value.split(',') {
        let pattern = match name.split_once('*') {
            _ if name.is_empty() => {
                return invalid(format!("{}: has an empty name", field.as_str()));
            }
            None => Pattern::Is(name.to_owned()),
            Some((beginning, "")) if !beginning.is_empty() => Pattern::Starts(beginning.to_owned()),
            Some(_) => {
                return invalid(format!(
                    "{name} is not supported: a star is allowed only at the end of a name, as in mail*"
                ));
            }
        };
        patterns.push(pattern);
    }
    Ok(patterns)
}

/// Parses an age, a date, or a time with its zone. Seconds may be left out.
fn moment(value: &str) -> Result<Moment, InvalidTaskSearch> {
    if let Some(age_ms) = age_ms(value) {
        return Ok(Moment::AgoMs(age_ms));
    }
    let with_seconds = |(minutes, zone): (&str, &str)| format!("{minutes}:00{zone}");
    let at = value
        .parse::<Timestamp>()
        .or_else(|_| format!("{value}T00:00:00Z").parse())
        .ok()
        .or_else(|| with_seconds(value.split_at_checked(16)?).parse().ok());
    match at {
        Some(at) => Ok(Moment::At(at)),
        None => invalid(format!(
            "{value} is not a time; use a time ago, such as 30m, 2h or 3d, or a date such as 2026-11-18 or 2026-11-18T09:30Z"
        )),
    }
}

fn age_ms(value: &str) -> Option<u64> {
    let (last, unit) = value.char_indices().next_back()?;
    let unit_ms = match unit.to_ascii_lowercase() {
        's' => 1_000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        'w' => 604_800_000,
        _ => return None,
    };
    let digits = &value[..last];
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || digits.len() > AGE_MAX_DIGITS {
        return None;
    }
    Some(digits.parse::<u64>().ok()? * unit_ms)
}
