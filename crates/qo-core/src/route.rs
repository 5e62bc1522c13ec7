//! Where a task belongs in a queue that is divided into partitions.
//!
//! An id has a route, and so do an idempotency key and the line of an ordering key. The partition is the route modulo the number of partitions.
//!
//! A key must be checked by one partition, and a task must be found by its id alone. Both hold if the task's id has the route of
//! its key. An id can be given any route without knowing the number of partitions: its route is a hash of its first fourteen
//! bytes, combined with its last two by exclusive or, and those two are free in a generated id.

use crate::id::TaskId;
use crate::task::{OrderingLine, ScopedKey};

/// The route of a task. It depends only on bytes that never change, and its values must never change either: stored tasks are
/// found by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route(u16);

impl Route {
    /// The route of documents, and of the tasks that are submitted together with a change of one: the first partition, whatever their
    /// number.
    pub const DOCUMENTS: Self = Self(0);

    /// The route of a text, such as the name of a worker.
    pub fn of(text: &str) -> Self {
        Self(hash(text.as_bytes()))
    }

    /// The partition of this route, of `count` partitions; 0 if there are none.
    pub fn partition(self, count: usize) -> usize {
        usize::from(self.0).checked_rem(count).unwrap_or(0)
    }
}

impl TaskId {
    /// The route of this id.
    pub fn route(&self) -> Route {
        let [first @ .., high, low] = self.as_uuid().as_bytes();
        Route(hash(first) ^ u16::from_be_bytes([*high, *low]))
    }

    /// This id with other last bytes, so that it has this route. An id that was random before is as random afterwards, apart from
    /// these sixteen bits.
    #[must_use]
    pub fn with_route(self, route: Route) -> Self {
        let mut bytes = *self.as_uuid().as_bytes();
        let [first @ .., high, low] = &mut bytes;
        [*high, *low] = (hash(first) ^ route.0).to_be_bytes();
        Self::from_bytes(bytes)
    }
}

impl ScopedKey {
    /// The route of this key, and of the task that holds it in a partitioned queue.
    pub fn route(&self) -> Route {
        Route::of(&self.canonical())
    }
}

impl OrderingLine {
    /// The route of this line, and of all its tasks in a partitioned queue.
    pub fn route(&self) -> Route {
        Route::of(&self.canonical())
    }
}

/// FNV-1a over the bytes, and a final mix, because the lowest bits decide and FNV-1a mixes upwards only.
fn hash(bytes: &[u8]) -> u16 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let [high, low, ..] = hash.to_be_bytes();
    u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::task::IdempotencyScope;
    use crate::time::Timestamp;

    fn key(text: &str) -> ScopedKey {
        ScopedKey::new(
            IdempotencyScope::Queue,
            &"default".parse().unwrap(),
            &"send_email".parse().unwrap(),
            &text.parse().unwrap(),
        )
    }

    /// Tasks are stored by these values.
    #[test]
    fn routes_never_change() {
        let id: TaskId = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
        assert_eq!(id.route(), Route(ID_ROUTE));
        assert_eq!(key("order 17").route(), Route(KEY_ROUTE));
        assert_eq!(id.route().partition(16), usize::from(ID_ROUTE) % 16);
        assert_eq!(id.route().partition(0), 0);
    }

    const ID_ROUTE: u16 = 0xc8cf;
    const KEY_ROUTE: u16 = 0x2c7c;

    /// Whatever ids a caller uses, the partitions get nearly equal shares.
    #[test]
    fn partitions_get_equal_shares() {
        let generated = |n: u64| {
            let random = u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            let millis = 1_790_000_000_000 + i64::try_from(n / 20).unwrap();
            TaskId::from_time(Timestamp::from_millis(millis), random)
        };
        let counted = |n: u64| TaskId::from_bytes(u128::from(n).to_be_bytes());
        // Only the time of a version 1 UUID differs between the ids of one machine.
        let of_one_machine = |n: u64| {
            TaskId::from_bytes((u128::from(n) << 96 | 0x1000_8000_0242_ac11).to_be_bytes())
        };
        let of_keys = |n: u64| generated(n).with_route(key(&n.to_string()).route());
        for count in [2, 3, 5, 16, 64] {
            let ids: [&dyn Fn(u64) -> TaskId; 4] =
                [&generated, &counted, &of_one_machine, &of_keys];
            for (kind, id) in ids.into_iter().enumerate() {
                let mut shares = vec![0_u64; count];
                let tasks = 2_000 * count as u64;
                for n in 0..tasks {
                    shares[id(n).route().partition(count)] += 1;
                }
                let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
                assert!(
                    *least >= 1_700 && *most <= 2_300,
                    "{count} partitions, ids of kind {kind}: {shares:?}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn an_id_takes_any_route(bytes: [u8; 16], text in "[a-z0-9 ]{1,40}", count in 1_usize..=1_024) {
            let id = TaskId::from_bytes(bytes);
            let routed = id.with_route(key(&text).route());
            prop_assert_eq!(routed.route(), key(&text).route());
            prop_assert_eq!(routed.route().partition(count), key(&text).route().partition(count));
            prop_assert!(routed.route().partition(count) < count);
            prop_assert_eq!(routed.shard(), id.shard());
            prop_assert_eq!(&routed.as_uuid().as_bytes()[..14], &bytes[..14]);
            prop_assert_eq!(id.with_route(id.route()), id);
        }
    }
}
