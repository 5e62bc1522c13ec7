//! Credentials appear nowhere: not in printed values, errors or logs.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode};
use qo_store::runtime::TokioRuntime;
use qo_store::{OpenOptions, check, open};
use tracing::field::{Field, Visit};
use tracing::span;

use crate::fake_server::{FakeServer, Response};

const SECRETS: [&str; 7] = [
    "AKIDHIDDENHIDDEN",
    "hiddenSecretAccessKey",
    "hiddenSessionToken",
    "aGlkZGVuQXp1cmVLZXk=",
    "hiddenGooglePrivateKey",
    "hiddenSasSignature",
    "hiddenProfileSecret",
];

/// Collects all log output, at every level and from every crate.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        attributes.record(&mut Fields(&mut self.0.lock().unwrap()));
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut Fields(&mut self.0.lock().unwrap()));
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Fields(&mut self.0.lock().unwrap()));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn assert_clean(what: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{what} shows {secret}: {text}");
    }
}

/// Opens a store against a server that echoes every request, and checks everything that can be printed.
async fn nothing_shows(url: &str, options: &OpenOptions) {
    assert_clean("the options", &format!("{options:?}"));
    let store = open(url, options).unwrap();
    assert_clean("the store", &format!("{store:?} {}", store.description));
    assert_clean(
        "the objects",
        &format!("{:?} {}", store.objects, store.objects),
    );
    assert_clean("its administration", &format!("{:?}", store.admin));
    let error = check(&store, &*TokioRuntime::shared()).await.unwrap_err();
    assert_clean("a check", &format!("{error} {error:?}"));
    let key = Path::from("key");
    let error = store.objects.get(&key).await.unwrap_err();
    assert_clean("a read", &format!("{error} {error:?}"));
    let error = store
        .objects
        .put_opts(&key, "x".into(), PutMode::Create.into())
        .await
        .unwrap_err();
    assert_clean("a write", &format!("{error} {error:?}"));
    if let Some(admin) = &store.admin {
        let error = admin.versioning().await.unwrap_err();
        assert_clean("the administration", &format!("{error} {error:?}"));
    }
}

#[tokio::test]
async fn credentials_appear_nowhere() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    // While the process has a single subscriber, tracing asks the first thread that reaches a callsite whether it
    // is enabled. Other tests have no subscriber and would disable the callsite for this one too.
    let _second = tracing::Dispatch::new(Log::default());
    // Like S3, and worse: the response repeats the credentials next to the code and the message.
    let server = FakeServer::start(|_| {
        Response::new(403).body(format!(
            "<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message><AWSAccessKeyId>{}</AWSAccessKeyId><StringToSign>{}</StringToSign></Error>",
            SECRETS[0],
            SECRETS.join(" ")
        ))
    })
    .await;
    let runtime = TokioRuntime::shared();
    let environment = OpenOptions::new(Arc::clone(&runtime))
        .with_var("AWS_ACCESS_KEY_ID", SECRETS[0])
        .with_var("AWS_SECRET_ACCESS_KEY", SECRETS[1])
        .with_var("AWS_SESSION_TOKEN", SECRETS[2]);
    nothing_shows(
        &format!("s3://bucket/p?endpoint={}", server.endpoint),
        &environment,
    )
    .await;

    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    std::fs::write(
        home.path().join(".aws/credentials"),
        format!(
            "[default]\naws_access_key_id={}\naws_secret_access_key={}\n",
            SECRETS[0], SECRETS[6]
        ),
    )
    .unwrap();
    let profile =
        OpenOptions::new(Arc::clone(&runtime)).with_var("HOME", home.path().to_str().unwrap());
    nothing_shows(
        &format!("s3://bucket?endpoint={}", server.endpoint),
        &profile,
    )
    .await;

    let azure =
        OpenOptions::new(Arc::clone(&runtime)).with_var("AZURE_STORAGE_ACCOUNT_NAME", "account");
    let url = format!("az://bucket?endpoint={}", server.endpoint);
    let key = azure
        .clone()
        .with_var("AZURE_STORAGE_ACCOUNT_KEY", SECRETS[3]);
    nothing_shows(&url, &key).await;
    let sas = azure.with_var(
        "AZURE_STORAGE_SAS_TOKEN",
        format!("sv=2025-01-05&sp=rwl&sig={}", SECRETS[5]),
    );
    nothing_shows(&url, &sas).await;

    let google = OpenOptions::new(runtime).with_var(
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        format!(
            r#"{{"private_key":"{}","private_key_id":"id","client_email":"a@example.org","disable_oauth":true}}"#,
            SECRETS[4]
        ),
    );
    nothing_shows(
        &format!("gs://bucket?endpoint={}", server.endpoint),
        &google,
    )
    .await;

    let logged = log.0.lock().unwrap().clone();
    assert!(
        logged.contains("status=403"),
        "requests must be logged: {logged}"
    );
    assert_clean("the log", &logged);
}

#[test]
fn errors_contain_no_credentials() {
    let runtime = TokioRuntime::shared();
    let options = OpenOptions::new(runtime)
        .with_var("AWS_ACCESS_KEY_ID", format!("{} x", SECRETS[0]))
        .with_var("AWS_SECRET_ACCESS_KEY", SECRETS[1])
        .with_var("AZURE_STORAGE_ACCOUNT_NAME", "account")
        .with_var("AZURE_STORAGE_ACCOUNT_KEY", format!("!{}", SECRETS[3]))
        .with_var("GOOGLE_SERVICE_ACCOUNT_KEY", format!("\"{}\"", SECRETS[4]));
    for url in [
        format!("s3://{}:{}@bucket", SECRETS[0], SECRETS[1]),
        format!("s3://bucket?secret={}", SECRETS[1]),
        format!("s3://bucket?endpoint=http://u:{}@host", SECRETS[1]),
        format!("https://{}@host", SECRETS[1]),
        "s3://bucket".to_owned(),
        "az://bucket".to_owned(),
        "gs://bucket".to_owned(),
    ] {
        let error = open(&url, &options).unwrap_err();
        assert_clean(&url, &format!("{error} {error:?}"));
    }
}
