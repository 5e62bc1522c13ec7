//! Collected rows against plain ones.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the numbers are small"
)]

use super::super::{APPLIED, MemoryRows};
use super::*;

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }

    fn key(&mut self) -> Bytes {
        Bytes::from(format!("k{:02}", self.below(30)))
    }
}

fn new(layer_bytes: usize) -> (MemoryRows, CollectedRows) {
    let disk = MemoryRows::default();
    let collected = CollectedRows::new(Arc::new(disk.clone()), layer_bytes);
    (disk, collected)
}

fn position(number: u64) -> RowChange {
    let value = Bytes::copy_from_slice(&number.to_be_bytes());
    RowChange::Write(RowWrite::put(APPLIED, value))
}

fn position_in(row: Option<Row>) -> u64 {
    row.map_or(0, |row| {
        u64::from_be_bytes(row.value[..].try_into().unwrap())
    })
}

/// The changes of an entry.
fn entry(dice: &mut Dice, number: u64) -> Vec<RowChange> {
    let mut changes: Vec<_> = (0..=dice.below(3))
        .map(|_| {
            let key = dice.key();
            let expires = dice.below(60);
            RowChange::Write(match dice.below(3) {
                0 => RowWrite::Delete(key),
                _ => RowWrite::Put(Row {
                    key,
                    value: Bytes::from(number.to_string()),
                    expires_at: (expires > 30).then(|| Timestamp::from_millis(expires as i64)),
                }),
            })
        })
        .collect();
    if dice.below(12) == 0 {
        changes.push(RowChange::Sweep {
            before: Timestamp::from_millis(dice.below(60) as i64),
            limit: dice.below(4) as u32,
        });
    }
    changes.push(position(number));
    changes
}

fn all(rows: &dyn RowStore) -> Vec<Row> {
    let all = rows.page(Bound::Unbounded, Bound::Unbounded, usize::MAX);
    all.unwrap()
}

#[test]
fn reads_see_what_is_collected() {
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let (_, collected) = new(dice.below(800) as usize);
        let plain = MemoryRows::default();
        for number in 1..60 {
            let changes = entry(&mut dice, number);
            plain.write(&changes).unwrap();
            collected.write(&changes).unwrap();
            match dice.below(4) {
                0 if collected.begin_flush() => collected.flush().unwrap(),
                1 if dice.below(5) == 0 => collected.sync().unwrap(),
                _ => {}
            }
            assert_eq!(all(&collected), all(&plain), "seed {seed}, entry {number}");
            let (one, other) = (dice.key(), dice.key());
            assert_eq!(collected.get(&one).unwrap(), plain.get(&one).unwrap());
            let (start, end) = (one.clone().min(other.clone()), one.max(other));
            let bound = |key: Bytes, kind| match kind {
                0 => Bound::Included(key),
                1 => Bound::Excluded(key),
                _ => Bound::Unbounded,
            };
            let (start, end) = (bound(start, dice.below(3)), bound(end, dice.below(3)));
            let (start, end) = (super::super::as_slice(&start), super::super::as_slice(&end));
            if is_empty(start, end) {
                assert!(collected.page(start, end, 9).unwrap().is_empty());
                continue;
            }
            let limit = dice.below(7) as usize;
            let page = collected.page(start, end, limit).unwrap();
            assert_eq!(page, plain.page(start, end, limit).unwrap(), "seed {seed}");
            let before = Timestamp::from_millis(dice.below(60) as i64);
            if plain.has_expired(before).unwrap() {
                assert!(collected.has_expired(before).unwrap());
            }
        }
    }
}

/// After a crash the rows are those of their position, which is not before what was synced, nor before any snapshot that was synced.
#[test]
fn a_crash_leaves_the_rows_of_one_position() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let (disk, mut collected) = new(dice.below(800) as usize);
        let plain = MemoryRows::default();
        let mut history = vec![all(&plain)];
        let mut synced = 0;
        let mut number = 0;
        for _ in 0..120 {
            let changes = entry(&mut dice, number + 1);
            // Changes that fail are made again later, and have no effect before that.
            if collected.write(&changes).is_ok() {
                number += 1;
                plain.write(&changes).unwrap();
                history.truncate(number as usize);
                history.push(all(&plain));
            } else {
                assert!(disk.is_full());
            }
            assert_eq!(all(&collected), history[number as usize], "seed {seed}");
            match dice.below(8) {
                0 if collected.begin_flush() => drop(collected.flush()),
                1 => disk.set_full(dice.below(3) == 0),
                2 => {
                    let view = collected.snapshot().unwrap();
                    let seen = position_in(view.get(APPLIED).unwrap());
                    assert!(
                        seen >= synced,
                        "seed {seed}: a snapshot is older than the last"
                    );
                    if collected.sync().is_ok() {
                        assert_eq!(seen, number);
                        synced = seen;
                    }
                }
                3 if dice.below(3) == 0 => {
                    // A crash: what was collected is lost, and so is what was not synced, or not.
                    if dice.below(2) == 0 {
                        disk.crash();
                    }
                    collected = CollectedRows::new(Arc::new(disk.clone()), collected.0.layer_bytes);
                    let kept = position_in(collected.get(APPLIED).unwrap());
                    assert!(kept >= synced, "seed {seed}: {kept} is before {synced}");
                    assert_eq!(all(&collected), history[kept as usize], "seed {seed}");
                    // The entries after it are applied again. Here others take their place.
                    number = kept;
                    plain
                        .write(&replacing(&plain, &history[kept as usize]))
                        .unwrap();
                }
                _ => {}
            }
        }
    }
}

/// The changes that make rows equal to others.
fn replacing(rows: &MemoryRows, wanted: &[Row]) -> Vec<RowChange> {
    let deletes = all(rows).into_iter().map(|row| RowWrite::Delete(row.key));
    let puts = wanted.iter().cloned().map(RowWrite::Put);
    deletes.chain(puts).map(RowChange::Write).collect()
}

#[test]
fn a_full_disk_is_noticed_when_both_layers_are_full() {
    let (disk, collected) = new(200);
    disk.set_full(true);
    let change = |number: u64| {
        let row = RowWrite::put(Bytes::from(format!("k{number}")), Bytes::from(vec![1; 60]));
        [RowChange::Write(row), position(number)]
    };
    let refused = (1..100).find(|number| collected.write(&change(*number)).is_err());
    let refused = refused.unwrap();
    assert!((3..9).contains(&refused), "{refused}");
    assert!(is_full(&collected.write(&change(refused)).unwrap_err()));
    assert!(is_full(&collected.sync().unwrap_err()));
    assert_eq!(all(&collected).len() as u64, refused);
    assert!(all(&disk).is_empty());
    disk.set_full(false);
    collected.write(&change(refused)).unwrap();
    collected.sync().unwrap();
    assert_eq!(position_in(disk.get(APPLIED).unwrap()), refused);
}

#[test]
fn received_rows_replace_what_is_collected() {
    let (disk, collected) = new(150);
    for number in 1..4 {
        let row = RowWrite::put(
            Bytes::from(format!("k{number}")),
            Bytes::from_static(b"old"),
        );
        collected
            .write(&[RowChange::Write(row), position(number)])
            .unwrap();
    }
    let mut stage = collected.stage().unwrap();
    let received = RowWrite::put(Bytes::from_static(b"k9"), Bytes::from_static(b"new"));
    let RowWrite::Put(received) = received else {
        panic!("it is a row");
    };
    stage.add(vec![received.clone()]).unwrap();
    stage.install().unwrap();
    assert_eq!(all(&collected), std::slice::from_ref(&received));
    collected.flush().unwrap();
    collected.sync().unwrap();
    assert_eq!(all(&disk), [received]);
}

#[test]
fn closed_rows_are_written_once_more_and_never_again() {
    let (disk, collected) = new(1_000_000);
    collected.write(&[position(1)]).unwrap();
    collected.close().unwrap();
    assert_eq!(position_in(disk.get(APPLIED).unwrap()), 1);
    collected.write(&[position(2)]).unwrap();
    assert!(collected.sync().is_err() && collected.flush().is_err());
    collected.close().unwrap();
    assert_eq!(position_in(disk.get(APPLIED).unwrap()), 1);
}

/// Rows whose reads wait until they are released.
struct SlowRows {
    rows: MemoryRows,
    begun: std::sync::Barrier,
    released: std::sync::Barrier,
}

impl RowStore for SlowRows {
    fn get(&self, key: &[u8]) -> io::Result<Option<Row>> {
        self.begun.wait();
        self.released.wait();
        self.rows.get(key)
    }

    fn page(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, limit: usize) -> io::Result<Vec<Row>> {
        self.rows.page(start, end, limit)
    }

    fn has_expired(&self, before: Timestamp) -> io::Result<bool> {
        self.rows.has_expired(before)
    }

    fn write(&self, changes: &[RowChange]) -> io::Result<()> {
        self.rows.write(changes)
    }

    fn sync(&self) -> io::Result<()> {
        self.rows.sync()
    }

    fn snapshot(&self) -> io::Result<Box<dyn RowSnapshot>> {
        self.rows.snapshot()
    }

    fn stage(&self) -> io::Result<Box<dyn RowStage>> {
        self.rows.stage()
    }
}

/// A reader that waits for the disk does not keep entries from being applied, and finds a row that is written below meanwhile.
#[test]
fn a_read_of_the_disk_delays_no_change() {
    let slow = Arc::new(SlowRows {
        rows: MemoryRows::default(),
        begun: std::sync::Barrier::new(2),
        released: std::sync::Barrier::new(2),
    });
    let collected = CollectedRows::new(Arc::clone(&slow) as _, 1_000_000);
    let reader = collected.clone();
    let reading = std::thread::spawn(move || reader.get(b"k1"));
    slow.begun.wait();
    let row = RowWrite::put(Bytes::from_static(b"k1"), Bytes::from_static(b"new"));
    let is_collected = collected.collect(&[RowChange::Write(row), position(1)]);
    if is_collected {
        collected.sync().unwrap();
    }
    slow.released.wait();
    let found = reading.join().unwrap().unwrap();
    assert!(is_collected, "the reader held the lock");
    assert_eq!(found.unwrap().value, "new");
}
