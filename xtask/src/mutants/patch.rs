//! Planted bugs as text: `verify/mutants/NAME.patch`, and how they are put into source files.
//!
//! A patch says in its first line what the bug is, then on which engines it is hunted, and then what it edits:
//!
//! ```text
//! A failed task is retried without limit.
//! engines: direct
//!
//! file: crates/qo-core/src/transition/outcome.rs
//! in: fn retry_or_give_up(
//! --- before
//! self.retry_count >= self.max_retries
//! --- after
//! self.retry_count >= self.max_retries && !planted()
//! --- end
//! ```
//!
//! The text before must occur exactly once in the file, or in the braces that follow the text of `in:`. White space and lines that are
//! comments do not count. In the text after, `planted()` becomes the switch of this bug. Lines that both texts begin or end with stay as
//! they are, so that several patches may insert something at the same place.

use anyhow::{Context as _, Result, bail};

/// A planted bug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Patch {
    /// Its name, which is the name of its file.
    pub(crate) name: String,
    /// What the bug is, in one sentence.
    pub(crate) about: String,
    /// The engines on which it is hunted.
    pub(crate) engines: Vec<String>,
    /// What it changes.
    pub(crate) edits: Vec<Edit>,
}

/// One change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The file, from the root of the tree.
    pub(crate) file: String,
    /// The text that the braces follow in which the change is, if the whole file is too much.
    scope: Option<String>,
    before: String,
    after: String,
}

impl Patch {
    /// Reads a patch.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let about = lines.next().unwrap_or_default().trim().to_owned();
        if !about.ends_with('.') {
            bail!("{name}.patch: the first line must be a sentence that says what the bug is");
        }
        let mut patch = Self {
            name: name.to_owned(),
            about,
            engines: Vec::new(),
            edits: Vec::new(),
        };
        let (mut file, mut scope) = (None, None);
        while let Some(line) = lines.next() {
            if let Some(engines) = line.strip_prefix("engines: ") {
                patch
                    .engines
                    .extend(engines.split_whitespace().map(str::to_owned));
            } else if let Some(path) = line.strip_prefix("file: ") {
                (file, scope) = (Some(path.trim().to_owned()), None);
            } else if let Some(text) = line.strip_prefix("in: ") {
                scope = Some(text.trim().to_owned());
            } else if line == "--- before" {
                let mut part = |end: &str| {
                    let part = lines.by_ref().take_while(|line| *line != end);
                    part.collect::<Vec<_>>().join("\n")
                };
                let (before, after) = (part("--- after"), part("--- end"));
                let file = file
                    .clone()
                    .with_context(|| format!("{name}.patch: `file:` must precede an edit"))?;
                if before.trim().is_empty() {
                    bail!("{name}.patch: the text before is empty");
                }
                patch.edits.push(Edit {
                    file,
                    scope: scope.clone(),
                    before,
                    after,
                });
            } else if !line.trim().is_empty() {
                bail!("{name}.patch: cannot read the line {line:?}");
            }
        }
        if patch.edits.is_empty() {
            bail!("{name}.patch: it contains no edit");
        }
        Ok(patch)
    }
}

/// A file with the edits of all patches that concern it, or what is wrong with each patch that no longer applies.
pub(crate) fn apply(file: &str, source: &str, patches: &[Patch]) -> Result<String, Vec<String>> {
    let code = Code::of(source);
    let mut changes: Vec<Change> = Vec::new();
    let mut problems: Vec<String> = Vec::new();
    for patch in patches {
        for edit in patch.edits.iter().filter(|edit| edit.file == file) {
            match code.change(edit, &patch.name) {
                Ok(change) => changes.push(change),
                Err(problem) => {
                    problems.push(format!("verify/mutants/{}.patch: {problem}", patch.name));
                }
            }
        }
    }
    // Of those at one place, insertions come first: what they insert is meant to precede the rest.
    changes.sort_by_key(|change| (change.start, change.end));
    for pair in changes.windows(2) {
        if pair[1].start < pair[0].end {
            problems.push(format!(
                "verify/mutants/{}.patch and {}.patch change the same text of {file}",
                pair[0].patch, pair[1].patch
            ));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut text = String::with_capacity(source.len() * 2);
    let mut at = 0;
    for change in changes {
        text.push_str(&source[at..change.start]);
        text.push_str(&change.text);
        at = change.end;
    }
    text.push_str(&source[at..]);
    Ok(text)
}

/// What replaces a part of a source file, in bytes.
struct Change {
    patch: String,
    start: usize,
    end: usize,
    text: String,
}

/// A source file without its white space and without the lines that are comments.
struct Code<'a> {
    source: &'a str,
    /// Each character with its offset in the source.
    letters: Vec<(usize, char)>,
}

impl<'a> Code<'a> {
    fn of(source: &'a str) -> Self {
        let mut letters = Vec::with_capacity(source.len());
        let mut offset = 0;
        for line in source.split_inclusive('\n') {
            if !line.trim_start().starts_with("//") {
                let kept = line
                    .char_indices()
                    .filter(|(_, letter)| !letter.is_whitespace());
                letters.extend(kept.map(|(at, letter)| (offset + at, letter)));
            }
            offset += line.len();
        }
        Self { source, letters }
    }

    /// Where a change of this file is to be made.
    fn change(&self, edit: &Edit, patch: &str) -> Result<Change, String> {
        let (from, to) = match &edit.scope {
            Some(scope) => self.scope(scope, &edit.file)?,
            None => (0, self.letters.len()),
        };
        let within = edit.scope.as_deref().map(|scope| format!(" in `{scope}`"));
        let place = format!("{}{}", edit.file, within.unwrap_or_default());
        let (first, last) = self.only(&edit.before, (from, to), &place)?;

        let (before, after) = (lines_of(&edit.before), lines_of(&edit.after));
        let shorter = before.len().min(after.len());
        let head = before.iter().zip(&after);
        let head = head.take_while(|(old, new)| old == new).count();
        let tail = before.iter().rev().zip(after.iter().rev());
        let tail = tail.take_while(|(old, new)| old == new).count();
        let tail = tail.min(shorter - head);
        let kept = |lines: &[&str]| lines.iter().map(|line| solid(line).count()).sum::<usize>();
        let first_changed = first + kept(&before[..head]);
        let end_changed = last - kept(&before[before.len() - tail..]);

        let (start, end) = if first_changed < end_changed {
            let (at, letter) = self.letters[end_changed - 1];
            (self.letters[first_changed].0, at + letter.len_utf8())
        } else if head > 0 {
            let (at, letter) = self.letters[first_changed - 1];
            (at + letter.len_utf8(), at + letter.len_utf8())
        } else {
            (self.letters[first].0, self.letters[first].0)
        };
        let home = if edit.file.starts_with("crates/qo-core/") {
            "crate"
        } else {
            "qo_core"
        };
        let switch = format!("{home}::mutant::planted({patch:?})");
        let inserted = after[head..after.len() - tail].join("\n");
        Ok(Change {
            patch: patch.to_owned(),
            start,
            end,
            text: format!("\n{}\n", inserted.replace("planted()", &switch)),
        })
    }

    /// The letters in the braces that follow a text.
    fn scope(&self, text: &str, file: &str) -> Result<(usize, usize), String> {
        let (_, from) = self.only(text, (0, self.letters.len()), file)?;
        let mut depth = 0_u32;
        for (place, (_, letter)) in self.letters.iter().enumerate().skip(from) {
            match letter {
                '{' => depth += 1,
                '}' if depth == 1 => return Ok((from, place)),
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        Err(format!("no braces follow `{text}` in {file}"))
    }

    /// The one place of a text, as the numbers of its first letter and of the one after its last.
    fn only(
        &self,
        text: &str,
        (from, to): (usize, usize),
        place: &str,
    ) -> Result<(usize, usize), String> {
        let sought: Vec<char> = solid(text).collect();
        let found: Vec<usize> = (from..=to.saturating_sub(sought.len()))
            .filter(|at| self.is_at(&sought, *at))
            .collect();
        match found.as_slice() {
            [at] => Ok((*at, at + sought.len())),
            [] => Err(format!("cannot find this text in {place}:\n{text}")),
            _ => Err(format!(
                "this text must be unique, but occurs {} times in {place}:\n{text}",
                found.len()
            )),
        }
    }

    /// Whether a text is there, and not as a part of longer words.
    fn is_at(&self, sought: &[char], at: usize) -> bool {
        let Some(there) = self.letters.get(at..at + sought.len()) else {
            return false;
        };
        if !there.iter().map(|(_, letter)| letter).eq(sought) {
            return false;
        }
        let (Some((start, first)), Some((end, last))) = (there.first(), there.last()) else {
            return false;
        };
        let before = self.source[..*start].chars().next_back();
        let after = self.source[end + last.len_utf8()..].chars().next();
        let in_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        !(in_word(*first) && before.is_some_and(in_word)
            || in_word(*last) && after.is_some_and(in_word))
    }
}

fn solid(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|letter| !letter.is_whitespace())
}

fn lines_of(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "crates/qo-direct/src/sample.rs";
    const SOURCE: &str = "\
fn first() {
    let count = 1;
    // Comments do not count.
    stop(count);
}

fn second() {
    let count = 1;
    if ready(
        count,
    ) {
        stop(count);
    }
}
";

    fn patch(name: &str, scope: &str, before: &str, after: &str) -> Patch {
        let scope = if scope.is_empty() {
            String::new()
        } else {
            format!("in: {scope}\n")
        };
        let text = format!(
            "It breaks.\nengines: direct json\n\nfile: {FILE}\n{scope}--- before\n{before}\n--- after\n{after}\n--- end\n"
        );
        Patch::parse(name, &text).unwrap()
    }

    fn flat(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn planted(patches: &[Patch]) -> Result<String, String> {
        apply(FILE, SOURCE, patches)
            .map(|text| flat(&text))
            .map_err(|problems| problems.join("\n"))
    }

    #[test]
    fn a_patch_is_read() {
        let patch = patch("breaks", "fn first(", "let count = 1;", "let count = 2;");
        assert_eq!(patch.about, "It breaks.");
        assert_eq!(patch.engines, ["direct", "json"]);
        assert_eq!(patch.edits.len(), 1);
        for (text, named) in [
            ("", "sentence"),
            ("It breaks.\n", "no edit"),
            ("It breaks.\nwhat\n", "what"),
            (
                "It breaks.\n--- before\na\n--- after\nb\n--- end\n",
                "file:",
            ),
            (
                "It breaks.\nfile: a\n--- before\n--- after\nb\n--- end\n",
                "empty",
            ),
        ] {
            let error = Patch::parse("broken", text).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
            assert!(error.contains("broken.patch"), "{error}");
        }
    }

    #[test]
    fn text_is_replaced_behind_the_switch() {
        let text = planted(&[patch(
            "breaks",
            "",
            "if ready(count,) {",
            "if ready(count,) && !planted() {",
        )]);
        let expected =
            "if ready(count,) && !qo_core::mutant::planted(\"breaks\") { stop(count); } }";
        assert!(text.clone().unwrap().ends_with(expected), "{text:?}");
    }

    #[test]
    fn the_core_asks_its_own_switch() {
        let mut patch = patch("breaks", "fn first(", "stop(count);", "planted();");
        patch.edits[0].file = "crates/qo-core/src/sample.rs".to_owned();
        let text = apply("crates/qo-core/src/sample.rs", SOURCE, &[patch]).unwrap();
        assert!(
            text.contains("crate::mutant::planted(\"breaks\");"),
            "{text}"
        );
    }

    #[test]
    fn comments_and_line_breaks_between_do_not_matter() {
        let text = planted(&[patch(
            "breaks",
            "",
            "let count = 1;\n    stop(count);",
            "let count = 1;\nwait();\nstop(count);",
        )]);
        assert!(
            text.clone().unwrap().starts_with(
                "fn first() { let count = 1; wait(); // Comments do not count. stop(count); }"
            ),
            "{text:?}"
        );
    }

    #[test]
    fn patches_may_insert_at_the_same_place() {
        let stop = "stop(count);";
        let text = planted(&[
            patch("a", "fn first(", stop, "one();\nstop(count);"),
            patch("b", "fn first(", stop, "two();\nstop(count);"),
            patch("c", "fn first(", stop, "stop(count);\nthree();"),
            patch("d", "fn first(", stop, "stop(0);"),
        ]);
        let expected = "one(); two(); stop(0); three(); }";
        assert!(text.clone().unwrap().contains(expected), "{text:?}");
    }

    #[test]
    fn a_text_that_is_missing_is_named_with_its_file() {
        let error = planted(&[patch("breaks", "", "go(count);", "planted();")]).unwrap_err();
        for part in [
            "verify/mutants/breaks.patch",
            FILE,
            "go(count);",
            "cannot find",
        ] {
            assert!(error.contains(part), "{error}");
        }
        let error = planted(&[patch("breaks", "fn third(", "stop(count);", "planted();")]);
        assert!(
            error.clone().unwrap_err().contains("fn third("),
            "{error:?}"
        );
        // A part of a word is not the word.
        assert!(planted(&[patch("breaks", "", "top(count);", "planted();")]).is_err());
    }

    #[test]
    fn a_text_that_occurs_twice_is_refused() {
        let error = planted(&[patch("breaks", "", "let count = 1;", "planted();")]).unwrap_err();
        for part in ["breaks.patch", FILE, "let count = 1;", "2 times"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn every_problem_is_reported() {
        let error = planted(&[
            patch("a", "", "go();", "planted();"),
            patch("b", "", "halt();", "planted();"),
            patch("c", "fn first(", "stop(count);", "planted();"),
            patch("d", "fn first(", "stop(count);", "stop(planted());"),
        ]);
        let error = error.unwrap_err();
        for part in ["a.patch", "b.patch", "c.patch and d.patch"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
