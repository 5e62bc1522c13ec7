//! Direct access to an S3 bucket from a browser: its location, short-lived sessions, and a publicly readable folder.
//!
//! Sessions come from the Security Token Service: that of AWS for its own buckets, the bucket's server for others, if
//! it has one. `AssumeRole` takes a role. `GetFederationToken`, which only AWS has, derives a session from a user's
//! long-lived keys. In both cases a session policy limits the session to the queue's part of the bucket.

use bytes::Bytes;
use http::Method;
use object_store::aws::AwsAuthorizer;
use object_store::client::HttpRequestBody;
use quick_xml::de::from_str;
use serde::Deserialize;
use serde_json::{Value, json};

use super::request::{AdminReply, AdminRequest, failure_of};
use super::{S3Admin, encoding::percent_encode};
use crate::browser::{BrowserCredentials, BrowserRights, BucketLocation, SessionRequest};
use crate::error::StoreError;
use crate::http_layer::{read_bounded, read_error};

const SESSION: &str = "creating a browser session";
const PUBLISHING: &str = "making the dashboard publicly readable";
/// The id of qo's statement in the bucket's policy. AWS allows only letters and digits.
const STATEMENT: &str = "QoDashboard";
const RESPONSE_MAX_BYTES: usize = 256 * 1024;

#[derive(Deserialize)]
struct SessionResponse {
    #[serde(alias = "AssumeRoleResult", alias = "GetFederationTokenResult")]
    result: SessionResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SessionResult {
    credentials: SessionCredentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SessionCredentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    expiration: String,
}

impl S3Admin {
    pub(super) fn location(&self) -> BucketLocation {
        let settings = &self.settings;
        let bucket = settings.bucket.clone();
        let path_style = settings.bucket_url.strip_suffix(&format!("/{bucket}"));
        let endpoint = path_style.map_or_else(
            || {
                settings
                    .bucket_url
                    .replacen(&format!("://{bucket}."), "://", 1)
            },
            str::to_owned,
        );
        BucketLocation {
            endpoint,
            virtual_host: path_style.is_none(),
            bucket,
            prefix: settings.prefix.to_string(),
            region: settings.region.clone(),
            bucket_url: settings.bucket_url.clone(),
        }
    }

    pub(super) async fn signing_credentials(&self) -> Result<BrowserCredentials, StoreError> {
        let credential = self.settings.credentials.get_credential().await;
        let credential = credential.map_err(|_| self.denied("no credentials are available"))?;
        Ok(BrowserCredentials {
            access_key_id: credential.key_id.clone(),
            secret_access_key: credential.secret_key.clone(),
            session_token: credential.token.clone(),
            expires_at: None,
        })
    }

    pub(super) async fn create_session(
        &self,
        request: &SessionRequest,
    ) -> Result<BrowserCredentials, StoreError> {
        let location = self.location();
        let is_aws = location.endpoint.ends_with(".amazonaws.com");
        // Servers other than AWS only support `AssumeRole`. Without a role, it gives a subset of the caller's
        // own permissions.
        let (action, name) = if is_aws && request.role.is_none() {
            ("GetFederationToken", "Name")
        } else {
            ("AssumeRole", "RoleSessionName")
        };
        let seconds = request.seconds.to_string();
        let policy = session_policy(&location, request.rights).to_string();
        let mut form = vec![
            ("Action", action),
            ("Version", "2011-06-15"),
            (name, "qo-dashboard"),
            ("DurationSeconds", &seconds),
            ("Policy", &policy),
        ];
        if let Some(role) = &request.role {
            form.push(("RoleArn", role));
        }
        let url = if is_aws {
            format!("https://sts.{}.amazonaws.com/", location.region)
        } else {
            format!("{}/", location.endpoint)
        };
        let response = self.request_session(&url, &form).await?;
        let text = String::from_utf8_lossy(&response);
        let response: SessionResponse = from_str(&text).map_err(|_| self.damaged("the session"))?;
        let credentials = response.result.credentials;
        Ok(BrowserCredentials {
            expires_at: credentials.expiration.parse().ok(),
            access_key_id: credentials.access_key_id,
            secret_access_key: credentials.secret_access_key,
            session_token: Some(credentials.session_token),
        })
    }

    async fn request_session(&self, url: &str, form: &[(&str, &str)]) -> Result<Bytes, StoreError> {
        let cannot = |detail: String| StoreError::Unsupported {
            operation: SESSION,
            detail,
        };
        let pairs: Vec<_> = form
            .iter()
            .map(|(name, value)| format!("{name}={}", percent_encode(value, false)))
            .collect();
        let credential = self.settings.credentials.get_credential().await;
        let credential = credential.map_err(|_| self.denied("no credentials are available"))?;
        let mut request = http::Request::builder()
            .method(Method::POST)
            .uri(url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(HttpRequestBody::from(Bytes::from(pairs.join("&"))))
            .map_err(|_| cannot("the service has no valid URL".to_owned()))?;
        AwsAuthorizer::new(&credential, "sts", &self.settings.region)
            .try_authorize(&mut request, None)
            .map_err(|_| cannot("the request could not be signed".to_owned()))?;
        let response = match self.settings.client.execute(request).await {
            Ok(response) => response,
            Err(error) => return Err(cannot(failure_of(&error).to_string())),
        };
        if !response.status().is_success() {
            return Err(cannot(read_error(response).await.1.to_string()));
        }
        match read_bounded(response.into_body(), RESPONSE_MAX_BYTES).await {
            Ok((body, false)) => Ok(body),
            Ok((_, true)) => Err(self.damaged("the session")),
            Err(error) => Err(cannot(format!("the response was interrupted: {error}"))),
        }
    }

    /// Adds a statement to the bucket's policy. Other statements stay.
    pub(super) async fn make_readable(&self, folder: &str) -> Result<bool, StoreError> {
        let resource = format!(
            "arn:aws:s3:::{}/{}/*",
            self.settings.bucket,
            self.settings.full_key(folder)
        );
        let present = self
            .setting("policy", PUBLISHING, "NoSuchBucketPolicy")
            .await?;
        let mut policy = match &present {
            None => json!({ "Version": "2012-10-17", "Statement": [] }),
            Some(text) => serde_json::from_slice::<Value>(text)
                .map_err(|_| self.damaged("the bucket's policy"))?,
        };
        let ours = json!({
            "Sid": STATEMENT,
            "Effect": "Allow",
            "Principal": "*",
            "Action": ["s3:GetObject"],
            "Resource": [resource],
        });
        let Some(statements) = policy.get_mut("Statement").and_then(Value::as_array_mut) else {
            return Err(self.damaged("the bucket's policy"));
        };
        if statements.contains(&ours) {
            return Ok(false);
        }
        // A queue under another prefix of the bucket has its own folder, so resources are added, not
        // replaced.
        match statements.iter_mut().find(|one| one["Sid"] == STATEMENT) {
            Some(one) => match one.get_mut("Resource").and_then(Value::as_array_mut) {
                Some(list) if list.contains(&json!(resource)) => return Ok(false),
                Some(list) => list.push(json!(resource)),
                None => *one = ours,
            },
            None => statements.push(ours),
        }
        let request = AdminRequest {
            method: Method::PUT,
            key: "",
            query: &[("policy", "")],
            body: Some(policy.to_string()),
            operation: PUBLISHING,
        };
        match self.settings.send(&request).await? {
            AdminReply::Body(_) => Ok(true),
            AdminReply::Refused { status, code } => Err(self.refused(PUBLISHING, status, &code)),
        }
    }

    fn denied(&self, detail: &str) -> StoreError {
        StoreError::Denied {
            key: self.settings.name_of(""),
            detail: detail.to_owned(),
        }
    }
}

/// What the page lists, with versions if there are any: the tasks, their indexes, the workers, and the schedules.
const LISTED: [&str; 6] = [
    "tasks/*",
    "ready/*",
    "later/*",
    "leases/*",
    "workers/*",
    "meta/settings/*",
];
/// What it only reads: payloads, what is used of limits, the lines of ordering keys, and the settings of limits and queues. The kinds of
/// settings with six letters are these two, which one pattern covers because the length of a policy is limited. Webhooks are listed, but
/// never read: they contain URLs and secrets.
const READ: [&str; 4] = ["data/*", "limits/*", "order/*", "meta/settings/??????/*"];
/// What it reads, and changes to operate the queue: tasks, workers, the paused queues, the schedules, and the signal for workers.
const CHANGED: [&str; 5] = [
    "tasks/*",
    "workers/*",
    "meta/queues.json",
    "meta/settings/schedules/*",
    "meta/signal.json",
];
/// What it creates and deletes: entries of tasks in the indexes.
const INDEXED: [&str; 3] = ["ready/*", "later/*", "leases/*"];

/// Limits a session to what the page needs in the queue's part of the bucket. Everything else stays out of reach, above all the tokens
/// of the HTTP API (`meta/tokens.json`) and the page itself (`ui/`). AWS accepts policies of up to 2,048 characters.
fn session_policy(location: &BucketLocation, rights: BrowserRights) -> Value {
    let bucket = format!("arn:aws:s3:::{}", location.bucket);
    let within = |pattern: &str| match location.prefix.as_str() {
        "" => pattern.to_owned(),
        prefix => format!("{prefix}/{pattern}"),
    };
    let objects = |patterns: &[&str]| -> Vec<String> {
        let objects = patterns.iter().map(|pattern| within(pattern));
        objects.map(|key| format!("{bucket}/{key}")).collect()
    };
    let allow = |actions: &[&str], patterns: &[&str]| json!({ "Effect": "Allow", "Action": actions, "Resource": objects(patterns) });
    let prefixes: Vec<String> = LISTED.iter().map(|pattern| within(pattern)).collect();
    let mut statements = vec![json!({
        "Effect": "Allow",
        "Action": ["s3:ListBucket", "s3:ListBucketVersions"],
        "Resource": bucket,
        "Condition": { "StringLike": { "s3:prefix": prefixes } },
    })];
    // One statement for all that is read and changed, because the length of a policy is limited.
    let (get, get_version, put) = ("s3:GetObject", "s3:GetObjectVersion", "s3:PutObject");
    match rights {
        BrowserRights::Operate => statements.extend([
            allow(&[get, get_version, put], &CHANGED),
            allow(&[put, "s3:DeleteObject"], &INDEXED),
        ]),
        BrowserRights::Read => statements.push(allow(&[get, get_version], &CHANGED)),
    }
    statements.push(allow(&[get], &READ));
    json!({ "Version": "2012-10-17", "Statement": statements })
}

#[cfg(test)]
mod tests {
    use qo_core::document::DocumentKind;

    use super::*;

    /// What every session reads, besides tasks and payloads.
    const READABLE: [&str; 6] = [
        "meta/queues.json",
        "limits/stripe.json",
        "order/0a.json",
        "meta/settings/schedules/x.json",
        "meta/settings/limits/x.json",
        "meta/settings/queues/x.json",
    ];

    /// What no session reads.
    const HIDDEN: [&str; 5] = [
        "meta/tokens.json",
        "meta/probe.json",
        "meta/settings/webhooks/x.json",
        "meta/settings/later/x.json",
        "private/x",
    ];

    /// What no session changes.
    const FIXED: [&str; 9] = [
        "meta/tokens.json",
        "meta/probe.json",
        "meta/settings/webhooks/x.json",
        "meta/settings/limits/x.json",
        "meta/settings/queues/x.json",
        "order/0a.json",
        "limits/stripe.json",
        "ui/index.html",
        "private/x",
    ];

    fn location(prefix: &str) -> BucketLocation {
        BucketLocation {
            endpoint: "https://s3.eu-central-1.amazonaws.com".to_owned(),
            virtual_host: true,
            bucket: "b".repeat(63),
            prefix: prefix.to_owned(),
            region: "eu-central-1".to_owned(),
            bucket_url: String::new(),
        }
    }

    fn texts(value: &Value) -> Vec<&str> {
        match value {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            other => other.as_str().into_iter().collect(),
        }
    }

    /// Whether a pattern matches, in which `?` is any character, and a `*` at the end is any text.
    fn matches(pattern: &str, text: &str) -> bool {
        let (start, is_open) = match pattern.strip_suffix('*') {
            Some(start) => (start, true),
            None => (pattern, false),
        };
        let is_equal = |(wanted, found): (char, char)| wanted == '?' || wanted == found;
        (text.len() == start.len() || is_open && text.len() > start.len())
            && start.chars().zip(text.chars()).all(is_equal)
    }

    /// Whether a policy allows an action on a key, or the listing of a prefix.
    fn allows(policy: &Value, action: &str, location: &BucketLocation, key: &str) -> bool {
        let bucket = format!("arn:aws:s3:::{}", location.bucket);
        let is_listing = action.starts_with("s3:List");
        let resource = if is_listing {
            bucket
        } else {
            format!("{bucket}/{key}")
        };
        policy["Statement"]
            .as_array()
            .unwrap()
            .iter()
            .any(|statement| {
                let condition = statement.get("Condition");
                let prefixes =
                    condition.map(|condition| texts(&condition["StringLike"]["s3:prefix"]));
                texts(&statement["Action"]).contains(&action)
                    && texts(&statement["Resource"])
                        .iter()
                        .any(|pattern| matches(pattern, &resource))
                    && prefixes
                        .is_none_or(|prefixes| prefixes.iter().any(|pattern| matches(pattern, key)))
            })
    }

    #[test]
    fn a_session_reaches_only_what_the_page_needs() {
        for (prefix, within) in [("", ""), ("team/queue", "team/queue/")] {
            let location = location(prefix);
            let read = session_policy(&location, BrowserRights::Read);
            let operate = session_policy(&location, BrowserRights::Operate);
            for policy in [&read, &operate] {
                let allows = |action, key: &str| allows(policy, action, &location, key);
                for folder in [
                    "tasks/",
                    "tasks/a/",
                    "ready/q/t/",
                    "later/",
                    "leases/",
                    "workers/",
                    "meta/settings/schedules/",
                ] {
                    assert!(
                        allows("s3:ListBucket", &format!("{within}{folder}")),
                        "{folder}"
                    );
                }
                assert!(allows(
                    "s3:ListBucketVersions",
                    &format!("{within}tasks/a/x.json")
                ));
                assert!(allows(
                    "s3:GetObject",
                    &format!("{within}data/a/x/input.json")
                ));
                for key in READABLE {
                    assert!(allows("s3:GetObject", &format!("{within}{key}")), "{key}");
                }
                assert!(allows(
                    "s3:GetObjectVersion",
                    &format!("{within}tasks/a/x.json")
                ));
                for key in ["", "meta/", "idempotency/", "private/", "slate/"] {
                    assert!(!allows("s3:ListBucket", key), "{key:?}");
                    assert!(!allows("s3:ListBucketVersions", key), "{key:?}");
                    assert!(
                        !allows("s3:ListBucket", &format!("{within}{key}")),
                        "{key:?}"
                    );
                }
                for key in HIDDEN {
                    let key = format!("{within}{key}");
                    assert!(!allows("s3:GetObject", &key), "{key}");
                    assert!(!allows("s3:GetObjectVersion", &key), "{key}");
                }
                for key in FIXED {
                    let key = format!("{within}{key}");
                    assert!(!allows("s3:PutObject", &key), "{key}");
                    assert!(!allows("s3:DeleteObject", &key), "{key}");
                }
                assert!(!allows(
                    "s3:DeleteObject",
                    &format!("{within}tasks/a/x.json")
                ));
            }
            for key in [
                "tasks/a/x.json",
                "workers/x.json",
                "ready/q/t/5/1/x",
                "later/1/x",
                "meta/queues.json",
                "meta/settings/schedules/x.json",
                "meta/signal.json",
            ] {
                let key = format!("{within}{key}");
                assert!(allows(&operate, "s3:PutObject", &location, &key), "{key}");
                assert!(!allows(&read, "s3:PutObject", &location, &key), "{key}");
            }
            for key in ["ready/q/t/5/1/x", "later/1/x", "leases/a/1/x/1"] {
                let key = format!("{within}{key}");
                assert!(
                    allows(&operate, "s3:DeleteObject", &location, &key),
                    "{key}"
                );
                assert!(!allows(&read, "s3:DeleteObject", &location, &key), "{key}");
            }
        }
    }

    #[test]
    fn a_session_reads_all_settings_but_webhooks() {
        let location = location("");
        for rights in [BrowserRights::Read, BrowserRights::Operate] {
            let policy = session_policy(&location, rights);
            for kind in DocumentKind::ALL {
                let key = format!("meta/settings/{kind}/x.json");
                let is_read = allows(&policy, "s3:GetObject", &location, &key);
                let is_changed = allows(&policy, "s3:PutObject", &location, &key);
                assert_eq!(is_read, kind != DocumentKind::Webhooks, "{key}");
                let may_change =
                    kind == DocumentKind::Schedules && rights == BrowserRights::Operate;
                assert_eq!(is_changed, may_change, "{key}");
            }
        }
    }

    #[test]
    fn a_session_policy_is_short_enough() {
        let policy = session_policy(&location(&"p".repeat(20)), BrowserRights::Operate);
        let length = policy.to_string().len();
        assert!(length <= 2_048, "{length}");
    }
}
