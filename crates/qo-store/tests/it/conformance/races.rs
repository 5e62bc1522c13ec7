//! Concurrent conditional writes: exactly one wins, and no update is lost.

use object_store::{ObjectStoreExt, PutMode, UpdateVersion};
use qo_store::StoreError;

use super::*;

/// Checks that exactly one writer won, and that its bytes are stored.
fn check_winner(round: usize, winners: &[usize], stored: &[u8]) {
    assert_eq!(winners.len(), 1, "round {round}: {winners:?} won");
    let winner = winners[0].to_string();
    assert_eq!(stored, winner.as_bytes(), "round {round}: a loser's bytes");
}

async fn race_raw(
    store: &StoreUnderTest,
    key: &str,
    mode: &PutMode,
    round: usize,
) -> UpdateVersion {
    let results = at_once(store.fan_out, |writer| {
        let (objects, location) = (Arc::clone(&store.objects), path(key));
        let mode = mode.clone();
        async move {
            let body = writer.to_string().into();
            let result = objects.put_opts(&location, body, mode.into()).await;
            (writer, result)
        }
    })
    .await;
    let winners: Vec<_> = results
        .into_iter()
        .filter_map(|(writer, result)| result.ok().map(|result| (writer, result)))
        .collect();
    let writers: Vec<_> = winners.iter().map(|(writer, _)| *writer).collect();
    let stored = store.objects.get(&path(key)).await.unwrap();
    check_winner(round, &writers, &stored.bytes().await.unwrap());
    UpdateVersion::from(winners.into_iter().next().unwrap().1)
}

pub(super) async fn one_create_wins(store: &StoreUnderTest) -> CheckResult {
    for round in 0..store.rounds {
        let key = store.key("raced");
        race_raw(store, &key, &PutMode::Create, round).await;
    }
    CheckResult::Noted(format!(
        "{} writers, {} rounds",
        store.fan_out, store.rounds
    ))
}

pub(super) async fn one_swap_wins(store: &StoreUnderTest) -> CheckResult {
    let key = store.key("raced");
    let first = store
        .objects
        .put(&path(&key), "first".into())
        .await
        .unwrap();
    let mut current = UpdateVersion::from(first);
    for round in 0..store.rounds {
        // The winner's bytes must differ between rounds, or equal tags would let two writers win.
        let between = store
            .objects
            .put_opts(
                &path(&key),
                format!("between {round}").into(),
                PutMode::Update(current).into(),
            )
            .await
            .unwrap();
        let mode = PutMode::Update(between.into());
        current = race_raw(store, &key, &mode, round).await;
    }
    CheckResult::Noted(format!(
        "{} writers, {} rounds",
        store.fan_out, store.rounds
    ))
}

pub(super) async fn one_create_wins_through_the_client(store: &StoreUnderTest) -> CheckResult {
    for round in 0..store.rounds {
        let key = store.key("raced");
        let results = at_once(store.fan_out, |_| {
            let (client, key, op) = (store.client.clone(), key.clone(), store.op());
            async move { (op, client.create(&key, record(1, op, &[]), &op).await) }
        })
        .await;
        let mut winners = Vec::new();
        for (op, result) in results {
            match result {
                Ok(_) => winners.push(op),
                Err(StoreError::AlreadyExists { .. }) => {}
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        let stored = store.client.get(&key).await.unwrap();
        assert_eq!(stored.body, record(1, winners[0], &[]), "round {round}");
    }
    CheckResult::Passed
}

pub(super) async fn one_swap_wins_through_the_client(store: &StoreUnderTest) -> CheckResult {
    let key = store.key("raced");
    let mut last = store.op();
    let written = store.client.create(&key, record(0, last, &[]), &last).await;
    let mut tag = written.unwrap().tag().unwrap().clone();
    for round in 0..store.rounds {
        let results = at_once(store.fan_out, |_| {
            let (client, key, tag) = (store.client.clone(), key.clone(), tag.clone());
            let op = store.op();
            let body = record(round as u64 + 1, op, &[last]);
            async move { (op, client.swap(&key, body, &tag, &op).await) }
        })
        .await;
        let mut winners = Vec::new();
        for (op, result) in results {
            match result {
                Ok(written) => winners.push((op, written)),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        let (op, written) = winners.remove(0);
        tag = written.tag().unwrap().clone();
        assert!(store.client.get(&key).await.unwrap().tag.matches(&tag));
        last = op;
    }
    CheckResult::Passed
}

pub(super) async fn no_increment_is_lost(store: &StoreUnderTest) -> CheckResult {
    let increments = store.rounds.min(8);
    let key = store.key("counter");
    let op = store.op();
    store
        .client
        .create(&key, record(0, op, &[]), &op)
        .await
        .unwrap();
    at_once(store.fan_out, |_| {
        let (client, key, runtime) = (
            store.client.clone(),
            key.clone(),
            Arc::clone(&store.runtime),
        );
        async move {
            for _ in 0..increments {
                let op = runtime.new_op_id();
                loop {
                    let read = client.get(&key).await.unwrap();
                    let next = revision(&read.body) + 1;
                    match client
                        .swap(&key, record(next, op, &[]), &read.tag, &op)
                        .await
                    {
                        Ok(_) => break,
                        Err(StoreError::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
    })
    .await;
    let stored = store.client.get(&key).await.unwrap();
    assert_eq!(revision(&stored.body), (store.fan_out * increments) as u64);
    CheckResult::Noted(format!("{} writers, {increments} each", store.fan_out))
}

fn revision(body: &[u8]) -> u64 {
    let record: serde_json::Value = serde_json::from_slice(body).unwrap();
    record["revision"].as_u64().unwrap()
}
