//! Counts the primes up to a limit.

use std::process::ExitCode;

/// One byte per number.
const LIMIT_MAX: usize = 100_000_000;

fn main() -> ExitCode {
    let limit = std::env::args().nth(1).map(|text| text.parse::<usize>());
    let limit = match limit {
        None => 1_000_000,
        Some(Ok(limit)) if limit <= LIMIT_MAX => limit,
        Some(_) => {
            eprintln!("usage: primes [LIMIT], at most {LIMIT_MAX}");
            return ExitCode::from(64);
        }
    };
    let mut is_composite = vec![false; limit + 1];
    let (mut count, mut largest) = (0, None);
    for number in 2..=limit {
        if is_composite[number] {
            continue;
        }
        count += 1;
        largest = Some(number);
        // A WebAssembly program has 32 bits for sizes, so the square may not fit. Then it is beyond the limit, too.
        let Some(square) = number.checked_mul(number) else {
            continue;
        };
        for multiple in (square..=limit).step_by(number) {
            is_composite[multiple] = true;
        }
    }
    match largest {
        Some(largest) => println!("{count} primes up to {limit}, the largest is {largest}"),
        None => println!("no primes up to {limit}"),
    }
    ExitCode::SUCCESS
}
