//! Counts the words of a text and prints the most frequent ones.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let shown = match std::env::args().nth(1).map(|text| text.parse::<usize>()) {
        None => 10,
        Some(Ok(shown)) => shown,
        Some(Err(_)) => {
            eprintln!("usage: wordcount [NUMBER]");
            return ExitCode::from(64);
        }
    };
    match count(shown) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn count(shown: usize) -> io::Result<()> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    for line in io::stdin().lock().lines() {
        let line = line?.to_lowercase();
        let words = line.split(|c: char| !c.is_alphanumeric());
        for word in words.filter(|word| !word.is_empty()) {
            *counts.entry(word.to_owned()).or_default() += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    // The order of equal counts must not depend on the hash.
    counts.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    let mut output = io::stdout().lock();
    for (word, count) in counts.iter().take(shown) {
        writeln!(output, "{count:>8}  {word}")?;
    }
    Ok(())
}
