//! What this process uses of its machine, read from Linux's `/proc`. Other systems return nothing.

use std::time::Duration;

/// Linux counts the CPU time in `/proc` in hundredths of a second, whatever the kernel's own timer does.
const TICK: Duration = Duration::from_millis(10);

/// What a process uses of its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUsage {
    /// The CPU time of all its threads since it started, without that of its child processes.
    pub cpu: Duration,
    /// Its memory that is not swapped out.
    pub memory_bytes: u64,
}

impl ProcessUsage {
    /// The usage of this process, if the system tells.
    pub(super) fn of_this_process() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        Some(Self {
            cpu: cpu_time(&stat)?,
            memory_bytes: memory_bytes(&status)?,
        })
    }
}

/// The sum of the 14th and 15th fields: user and system time.
fn cpu_time(stat: &str) -> Option<Duration> {
    // The second field is the program's name in parentheses, which may contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    TICK.checked_mul(user)?
        .checked_add(TICK.checked_mul(system)?)
}

fn memory_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_system_are_understood() {
        let stat = "71 (a) b c) S 1 71 71 0 -1 4194560 1500 0 3 0 250 125 9 9 20 0 12 0 5 1000 200";
        assert_eq!(cpu_time(stat), Some(Duration::from_millis(3_750)));
        let status = "Name:\tqo\nVmPeak:\t  900 kB\nVmRSS:\t   24680 kB\nThreads:\t4\n";
        assert_eq!(memory_bytes(status), Some(24_680 * 1_024));
        for text in ["", "1 (qo", "1 (qo) S 1 2", "VmRSS:\t many kB", "VmRSS: 5"] {
            assert_eq!((cpu_time(text), memory_bytes(text)), (None, None), "{text}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_uses_memory() {
        let usage = ProcessUsage::of_this_process().unwrap();
        assert!(usage.memory_bytes > 100_000, "{usage:?}");
        assert!(usage.cpu < Duration::from_hours(24), "{usage:?}");
    }
}
