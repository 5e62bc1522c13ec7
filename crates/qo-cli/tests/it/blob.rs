//! `qo blob`, on an SQLite file, on a bucket and through a server.

use qo_fixtures::TestStore;

use crate::workspace::Workspace;

/// Bytes that are not text.
fn bytes_of(size: usize) -> Vec<u8> {
    (0..size)
        .map(|index| u8::try_from(index * index % 256).unwrap())
        .collect()
}

/// `printf hello | sha256sum`
const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

#[test]
fn files_go_in_and_come_out_unchanged() {
    let workspace = Workspace::new();
    let put = workspace.qo_reading(&["blob", "put", "-"], "hello");
    put.assert(0);
    assert_eq!(put.stdout.trim(), HELLO);
    let again = workspace.qo_reading(&["blob", "put", "-", "--json"], "hello");
    let again = again.json("blob-put");
    assert_eq!(
        (&again["created"], &again["size"]),
        (&false.into(), &5.into())
    );
    let content = bytes_of(3_000_000);
    std::fs::write(workspace.path().join("large"), &content).unwrap();
    let put = workspace
        .qo(&["blob", "put", "large", "--json"])
        .json("blob-put");
    let address = put["address"].as_str().unwrap().to_owned();
    let got = workspace.qo(&["blob", "get", &address, "-o", "copy", "--json"]);
    assert_eq!(got.json("blob-file")["size"], 3_000_000);
    assert!(std::fs::read(workspace.path().join("copy")).unwrap() == content);
    assert_eq!(
        workspace.qo(&["blob", "get", HELLO]).assert(0).stdout,
        "hello"
    );
    let listed = workspace.qo(&["blob", "list", "--json"]).lines("blob");
    assert_eq!(listed.len(), 2);
    let table = workspace.qo(&["blob", "list", "--limit", "1"]);
    assert!(table.assert(0).stdout.contains("ADDRESS"));
    assert!(table.stderr.contains("--after"));
    let report = workspace.qo(&["blob", "gc", "--json"]).json("blob-gc");
    assert_eq!(
        (&report["recent"], &report["collected"]),
        (&2.into(), &0.into())
    );
    let deleted = workspace.qo(&["blob", "delete", HELLO, "--json"]);
    assert_eq!(deleted.json("blob-deleted")["deleted"], true);
    workspace.qo(&["blob", "get", HELLO]).assert(3);
    workspace.qo(&["blob", "delete", HELLO]).assert(3);
}

#[test]
fn wrong_requests_say_what_is_wrong() {
    let workspace = Workspace::new();
    let expect = workspace.qo_reading(&["blob", "put", "-", "--expect", HELLO], "goodbye");
    assert!(expect.assert(2).stderr.contains("nothing was stored"));
    assert!(
        workspace
            .qo(&["blob", "list", "--json"])
            .assert(0)
            .stdout
            .is_empty()
    );
    workspace
        .qo(&["blob", "get", "59ae214373240a255f453cc2fa8d26ab60d6b532"])
        .assert(2);
    workspace.qo(&["blob", "put", "no-such-file"]).assert(2);
    workspace.qo(&["blob", "put", "."]).assert(2);
    workspace.qo(&["blob", "get", HELLO, "--json"]).assert(2);
    let short = workspace.qo(&["blob", "gc", "--grace", "5m"]);
    assert!(short.assert(2).stderr.contains("3600 seconds"));
}

#[test]
fn a_damaged_blob_leaves_no_file() {
    let workspace = Workspace::new();
    workspace
        .qo_reading(&["blob", "put", "-"], "hello")
        .assert(0);
    let file = workspace.path().join("queue.db");
    let url = format!("sqlite:{}", file.display());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = qo::Connect::to(url).open_store().unwrap();
        let client = qo_fixtures::client_of(&store);
        let key = format!("blobs/data/2c/{HELLO}.1");
        client.put(&key, "hellO".into()).await.unwrap();
    });
    let got = workspace.qo(&["blob", "get", HELLO, "--output", "copy"]);
    assert!(got.assert(9).stderr.contains("damaged"));
    let names: Vec<_> = std::fs::read_dir(workspace.path()).unwrap().collect();
    let is_copy = |name: &std::ffi::OsStr| name.to_string_lossy().contains("copy");
    assert!(
        !names
            .into_iter()
            .any(|entry| is_copy(&entry.unwrap().file_name()))
    );
    // Deleted and uploaded again, it is whole.
    workspace.qo(&["blob", "delete", HELLO]).assert(0);
    workspace
        .qo_reading(&["blob", "put", "-"], "hello")
        .assert(0);
    assert_eq!(
        workspace.qo(&["blob", "get", HELLO]).assert(0).stdout,
        "hello"
    );
}

#[test]
fn blobs_work_on_a_bucket_in_every_mode() {
    let workspace = Workspace::new();
    for engine in ["direct", "json", "slate"] {
        let address = TestStore::seaweedfs("cliblob").with_engine(engine);
        let qo = |words: &[&str]| {
            let mut command = workspace.bare(words);
            command.env("QO_STORE", address.url());
            for (name, value) in address.variables() {
                command.env(name, value);
            }
            let output = command.output().unwrap();
            assert!(output.status.success(), "{engine}: {output:?}");
            output.stdout
        };
        let file = workspace.file("hello", "hello");
        let put = qo(&["blob", "put", file.to_str().unwrap()]);
        assert_eq!(String::from_utf8(put).unwrap().trim(), HELLO);
        assert_eq!(qo(&["blob", "get", HELLO]), b"hello");
        let report: serde_json::Value =
            serde_json::from_slice(&qo(&["blob", "gc", "--json"])).unwrap();
        assert_eq!(report["recent"], 1);
    }
}
