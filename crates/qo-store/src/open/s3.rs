//! Opening a bucket on S3, or on a server that speaks its protocol.
//!
//! Settings come, in this order, from the URL, from the variables of qo's own (`S3_ENDPOINT`, `S3_REGION`), from those of
//! the AWS tools, and from the profile. Credentials come from the first of: the profile that the URL names, the keys in
//! the environment, the profile of `AWS_PROFILE` or `default`, a web identity, the container, the machine.

use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider};
use object_store::client::HttpConnector;
use object_store::{ClientConfigKey, StaticCredentialProvider};

use super::address::{BucketAddress, Endpoint};
use super::error::OpenError;
use super::options::OpenOptions;
use super::process::ProcessCredentials;
use super::profile::{Profile, ProfileFiles};
use super::{describe, dress, no_retries, usable_in_a_header};
use crate::clock::StoreClock;
use crate::http_layer::{StoreConnector, client_options};
use crate::s3::{S3Admin, S3AdminSettings};
use crate::store::{CredentialSource, Store, StoreKind, StoreSource};

const DEFAULT_REGION: &str = "us-east-1";

pub(super) fn open(address: &BucketAddress, options: &OpenOptions) -> Result<Store, OpenError> {
    let files = ProfileFiles::locate(options);
    let profile = find_profile(address, options, &files)?;
    let region = region(address, options, profile.as_ref())?;
    let given_endpoint = endpoint(address, options, profile.as_ref())?;
    let place = Place::new(&address.bucket, &region, given_endpoint.as_ref(), options)?;
    let description = describe(address, &place.endpoint);
    let credentials = credentials(options, profile.as_ref(), &description)?;

    let clock = Arc::new(StoreClock::new());
    let world = Arc::clone(options.world());
    let connector = StoreConnector::new(
        Arc::clone(&world),
        Arc::clone(&clock),
        &place.endpoint.authority,
    );
    let http_options = client_options(place.endpoint.is_http);
    let bad_settings = |_| OpenError::BadSettings {
        store: description.clone(),
        family: "AWS",
    };
    let mut builder = AmazonS3Builder::new()
        .with_client_options(http_options.clone())
        .with_retry(no_retries());
    for (name, value) in options.vars_with_prefix("AWS_") {
        if let Ok(key) = name.to_ascii_lowercase().parse()
            && is_left_to_the_builder(key)
        {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(endpoint) = &given_endpoint {
        builder = builder.with_endpoint(&endpoint.url);
    }
    if let Some(provider) = credentials.provider {
        builder = builder.with_credentials(provider);
    }
    let client = builder
        .with_bucket_name(&address.bucket)
        .with_region(&region)
        .with_virtual_hosted_style_request(place.virtual_hosted)
        .with_http_connector(connector.clone())
        .build()
        .map_err(bad_settings)?;
    let admin = S3Admin::new(S3AdminSettings {
        client: connector.connect(&http_options).map_err(bad_settings)?,
        credentials: Arc::clone(client.credentials()),
        region,
        bucket: address.bucket.clone(),
        bucket_url: place.bucket_url,
        prefix: address.prefix.clone(),
        world,
    });
    Ok(Store {
        objects: dress(client, &address.prefix, &description),
        admin: Some(Arc::new(admin)),
        clock,
        description,
        kind: StoreKind::S3,
        source: StoreSource::Url,
        credentials: credentials.source,
        bucket: address.bucket.clone(),
        endpoint: place.endpoint.origin(),
    })
}

/// Where requests about the bucket go.
struct Place {
    /// The server, with the bucket in its host name where that is the style.
    endpoint: Endpoint,
    /// What a key is appended to.
    bucket_url: String,
    virtual_hosted: bool,
}

impl Place {
    fn new(
        bucket: &str,
        region: &str,
        endpoint: Option<&Endpoint>,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        if let Some(endpoint) = endpoint {
            // Few servers besides AWS have a name per bucket; who has says so, and gives that name.
            let virtual_hosted = options.flag("AWS_VIRTUAL_HOSTED_STYLE_REQUEST");
            let bucket_url = if virtual_hosted {
                endpoint.url.clone()
            } else {
                format!("{}/{bucket}", endpoint.url)
            };
            return Ok(Self {
                endpoint: endpoint.clone(),
                bucket_url,
                virtual_hosted,
            });
        }
        // The certificate of AWS covers one label before the service's name, so that a dot in the bucket breaks it.
        let virtual_hosted = !bucket.contains(['.', '_']);
        let (host, bucket_url) = if virtual_hosted {
            let host = format!("https://{bucket}.s3.{region}.amazonaws.com");
            (host.clone(), host)
        } else {
            let host = format!("https://s3.{region}.amazonaws.com");
            (host.clone(), format!("{host}/{bucket}"))
        };
        Ok(Self {
            endpoint: Endpoint::parse("the bucket's address", &host)?,
            bucket_url,
            virtual_hosted,
        })
    }
}

/// A profile with its name, and whether its credentials are to be used before those of the environment.
struct NamedProfile {
    name: String,
    profile: Profile,
    is_explicit: bool,
}

fn find_profile(
    address: &BucketAddress,
    options: &OpenOptions,
    files: &ProfileFiles,
) -> Result<Option<NamedProfile>, OpenError> {
    let named = |name: &str, is_explicit| {
        files.profile(name).map(|profile| {
            profile.map(|profile| NamedProfile {
                name: name.to_owned(),
                profile,
                is_explicit,
            })
        })
    };
    let required = |name: &str, is_explicit| {
        named(name, is_explicit)?
            .map(Some)
            .ok_or_else(|| OpenError::MissingProfile {
                profile: name.chars().take(64).collect(),
                credentials_file: files.credentials.clone(),
                config_file: files.config.clone(),
            })
    };
    if let Some(name) = &address.profile {
        return required(name, true);
    }
    if let Some(name) = options.var("AWS_PROFILE") {
        return required(name, false);
    }
    match named("default", false) {
        // Nobody asked for the file, and with keys in the environment nobody needs it.
        Err(_) if options.var("AWS_ACCESS_KEY_ID").is_some() => Ok(None),
        outcome => outcome,
    }
}

fn region(
    address: &BucketAddress,
    options: &OpenOptions,
    profile: Option<&NamedProfile>,
) -> Result<String, OpenError> {
    let variable = |name: &'static str| options.var(name).map(|value| (name, value));
    let (setting, region) = address
        .region
        .as_deref()
        .map(|region| ("the parameter region", region))
        .or_else(|| variable("S3_REGION"))
        .or_else(|| variable("AWS_REGION"))
        .or_else(|| variable("AWS_DEFAULT_REGION"))
        .or_else(|| Some(("the profile's region", profile?.profile.get("region")?)))
        .unwrap_or(("the default region", DEFAULT_REGION));
    let is_region = region.len() <= 64
        && region
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_region {
        return Err(OpenError::BadSetting {
            setting: setting.to_owned(),
            reason: "expected a region such as eu-central-1",
        });
    }
    Ok(region.to_owned())
}

fn endpoint(
    address: &BucketAddress,
    options: &OpenOptions,
    profile: Option<&NamedProfile>,
) -> Result<Option<Endpoint>, OpenError> {
    let variable = |name: &'static str| options.var(name).map(|value| (name, value));
    address
        .endpoint
        .as_deref()
        .map(|endpoint| ("the parameter endpoint", endpoint))
        .or_else(|| variable("S3_ENDPOINT"))
        .or_else(|| variable("AWS_ENDPOINT_URL_S3"))
        .or_else(|| variable("AWS_ENDPOINT_URL"))
        .or_else(|| {
            let endpoint = profile?.profile.get("endpoint_url")?;
            Some(("the profile's endpoint_url", endpoint))
        })
        .map(|(setting, endpoint)| Endpoint::parse(setting, endpoint))
        .transpose()
}

/// The variables that the client below understands better: roles, containers, encryption, proxies. What is decided here
/// stays out, and so does what would take away conditional writes or signatures.
fn is_left_to_the_builder(key: AmazonS3ConfigKey) -> bool {
    !matches!(
        key,
        AmazonS3ConfigKey::AccessKeyId
            | AmazonS3ConfigKey::SecretAccessKey
            | AmazonS3ConfigKey::Token
            | AmazonS3ConfigKey::Region
            | AmazonS3ConfigKey::DefaultRegion
            | AmazonS3ConfigKey::Bucket
            | AmazonS3ConfigKey::Endpoint
            | AmazonS3ConfigKey::S3Endpoint
            | AmazonS3ConfigKey::VirtualHostedStyleRequest
            | AmazonS3ConfigKey::S3Express
            | AmazonS3ConfigKey::SkipSignature
            | AmazonS3ConfigKey::ConditionalPut
            | AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp)
    )
}

/// Where the credentials come from, and the provider if it is not one that the client below makes itself.
struct Credentials {
    source: CredentialSource,
    provider: Option<AwsCredentialProvider>,
}

fn credentials(
    options: &OpenOptions,
    profile: Option<&NamedProfile>,
    store: &str,
) -> Result<Credentials, OpenError> {
    if let Some(profile) = profile
        && profile.is_explicit
    {
        return of_profile(profile, options)?.ok_or_else(|| OpenError::BadSetting {
            setting: format!("AWS profile {:?}", profile.name),
            reason: "it has neither aws_access_key_id and aws_secret_access_key nor a credential_process",
        });
    }
    let keys = keys(
        options.var("AWS_ACCESS_KEY_ID"),
        options.var("AWS_SECRET_ACCESS_KEY"),
        options.var("AWS_SESSION_TOKEN"),
        "the environment variable",
        [
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
        ],
    )?;
    if let Some(provider) = keys {
        return Ok(Credentials {
            source: CredentialSource::AwsEnvironment,
            provider: Some(provider),
        });
    }
    let left_to_the_builder = |source| {
        Ok(Credentials {
            source,
            provider: None,
        })
    };
    let web_identity = options.var("AWS_WEB_IDENTITY_TOKEN_FILE").is_some()
        && options.var("AWS_ROLE_ARN").is_some();
    let container = options
        .var("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        .is_some()
        || (options.var("AWS_CONTAINER_CREDENTIALS_FULL_URI").is_some()
            && options
                .var("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
                .is_some());
    if let Some(profile) = profile {
        match of_profile(profile, options) {
            Ok(Some(credentials)) => return Ok(credentials),
            Ok(None) => {}
            // A default profile that nobody named does not stand in the way of a role that somebody gave.
            Err(OpenError::UnsupportedProfile { .. })
                if (web_identity || container) && options.var("AWS_PROFILE").is_none() => {}
            Err(error) => return Err(error),
        }
    }
    if web_identity {
        left_to_the_builder(CredentialSource::AwsWebIdentity)
    } else if container {
        left_to_the_builder(CredentialSource::AwsContainer)
    } else if options.flag("AWS_EC2_METADATA_DISABLED") {
        Err(OpenError::NoCredentials {
            store: store.to_owned(),
            advice: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with AWS_PROFILE",
        })
    } else {
        left_to_the_builder(CredentialSource::AwsInstance)
    }
}

/// The credentials of a profile; `None` where it has none.
fn of_profile(
    named: &NamedProfile,
    options: &OpenOptions,
) -> Result<Option<Credentials>, OpenError> {
    let NamedProfile { name, profile, .. } = named;
    if let Some(what) = profile.unsupported() {
        return Err(OpenError::UnsupportedProfile {
            profile: name.clone(),
            what,
        });
    }
    let keys = keys(
        profile.get("aws_access_key_id"),
        profile.get("aws_secret_access_key"),
        profile.get("aws_session_token"),
        &format!("AWS profile {name:?}: its"),
        [
            "aws_access_key_id",
            "aws_secret_access_key",
            "aws_session_token",
        ],
    )?;
    if let Some(provider) = keys {
        return Ok(Some(Credentials {
            source: CredentialSource::AwsProfile(name.clone()),
            provider: Some(provider),
        }));
    }
    Ok(profile
        .get("credential_process")
        .map(|command| Credentials {
            source: CredentialSource::AwsProcess(name.clone()),
            provider: Some(Arc::new(ProcessCredentials::new(
                name,
                command,
                Arc::clone(options.world()),
            ))),
        }))
}

/// A pair of keys, both of them or none, in characters that a header can hold.
fn keys(
    key_id: Option<&str>,
    secret: Option<&str>,
    token: Option<&str>,
    place: &str,
    names: [&str; 3],
) -> Result<Option<AwsCredentialProvider>, OpenError> {
    let incomplete = |present: &str, missing: &str| OpenError::IncompleteCredentials {
        present: format!("{place} {present}"),
        missing: missing.to_owned(),
    };
    let (key_id, secret_key) = match (key_id, secret) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(incomplete(names[0], names[1])),
        (None, Some(_)) => return Err(incomplete(names[1], names[0])),
        (Some(key_id), Some(secret)) => (key_id, secret),
    };
    for (name, value) in [(names[0], Some(key_id)), (names[2], token)] {
        if !value.is_none_or(usable_in_a_header) {
            return Err(OpenError::BadSetting {
                setting: format!("{place} {name}"),
                reason: "it has a blank, a line break or a character outside of ASCII",
            });
        }
    }
    Ok(Some(Arc::new(StaticCredentialProvider::new(
        AwsCredential {
            key_id: key_id.to_owned(),
            secret_key: secret_key.to_owned(),
            token: token.map(str::to_owned),
        },
    ))))
}
