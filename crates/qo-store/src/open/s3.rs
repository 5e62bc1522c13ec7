//! Opening a bucket on S3, or on a server with an S3-compatible API.
//!
//! Settings come from, in this order: the URL, qo's own variables (`S3_ENDPOINT`, `S3_REGION`), the variables of the AWS
//! tools, and the profile.

use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{ClientConfigKey, ClientOptions};

use super::address::BucketAddress;
use super::aws_credentials::{NamedProfile, credentials, find_profile};
use super::cloud::{Connection, describe, no_retries, wrap};
use super::endpoint::Endpoint;
use super::error::OpenError;
use super::options::OpenOptions;
use super::profile::ProfileFiles;
use crate::http_layer::client_options;
use crate::s3::{S3Admin, S3AdminSettings};
use crate::store::{Store, StoreKind, StoreSource};

const DEFAULT_REGION: &str = "us-east-1";

pub(super) fn open(address: &BucketAddress, options: &OpenOptions) -> Result<Store, OpenError> {
    let files = ProfileFiles::locate(options);
    let profile = find_profile(address, options, &files)?;
    let region = region(address, options, profile.as_ref())?;
    let given_endpoint = endpoint(address, options, profile.as_ref())?;
    let location = BucketEndpoint::new(&address.bucket, &region, given_endpoint.as_ref(), options)?;
    let description = describe(address, &location.endpoint);
    let credentials = credentials(options, profile.as_ref(), &description)?;

    let http_options = http_options(options, &location.endpoint);
    let connection = Connection::new(
        options,
        &location.endpoint,
        http_options,
        &description,
        "AWS",
    )?;
    let mut builder = AmazonS3Builder::new()
        .with_client_options(connection.http_options)
        .with_retry(no_retries());
    for (name, value) in options.vars_with_prefix("AWS_") {
        if let Ok(key) = name.to_ascii_lowercase().parse()
            && is_passed_on(key)
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
        .with_virtual_hosted_style_request(location.virtual_hosted)
        .with_http_connector(connection.connector)
        .build()
        .map_err(|_| OpenError::BadSettings {
            store: description.clone(),
            family: "AWS",
        })?;
    let admin = S3Admin::new(S3AdminSettings {
        client: connection.client,
        credentials: Arc::clone(client.credentials()),
        region,
        bucket: address.bucket.clone(),
        bucket_url: location.bucket_url,
        prefix: address.prefix.clone(),
        runtime: Arc::clone(options.runtime()),
    });
    Ok(Store {
        objects: wrap(client, &address.prefix, &description),
        admin: Some(Arc::new(admin)),
        clock: connection.clock,
        description,
        kind: StoreKind::S3,
        source: StoreSource::Url,
        credentials: credentials.source,
        bucket: address.bucket.clone(),
        endpoint: location.endpoint.origin(),
    })
}

/// The server and URL of a bucket.
struct BucketEndpoint {
    /// The server. Its host name includes the bucket for virtual-hosted requests.
    endpoint: Endpoint,
    /// The base URL of the bucket's keys.
    bucket_url: String,
    virtual_hosted: bool,
}

impl BucketEndpoint {
    fn new(
        bucket: &str,
        region: &str,
        endpoint: Option<&Endpoint>,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        if let Some(endpoint) = endpoint {
            // Few servers besides AWS have a host name per bucket. Such a setup must set this variable, and an endpoint
            // with the bucket in its name.
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
        // The certificate of AWS covers a single label before the service's name, so a bucket name with a dot does not
        // match it. Some old buckets have names that are not valid labels.
        let virtual_hosted = bucket
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
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

fn region(
    address: &BucketAddress,
    options: &OpenOptions,
    profile: Option<&NamedProfile>,
) -> Result<String, OpenError> {
    let variable = |name: &'static str| options.var(name).map(|value| (name, value));
    let (setting, region) = address
        .parameter("region")
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
        .parameter("endpoint")
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

/// Whether a variable is passed to `object_store`: roles, containers, encryption, proxies. Excluded are settings that are
/// decided here, and those that would disable conditional writes or signatures.
fn is_passed_on(key: AmazonS3ConfigKey) -> bool {
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
            | AmazonS3ConfigKey::Client(_)
    )
}

/// The connection options, including proxies and timeouts, for both objects and administration.
fn http_options(options: &OpenOptions, endpoint: &Endpoint) -> ClientOptions {
    let mut http_options = client_options(endpoint.is_http);
    for (name, value) in options.vars_with_prefix("AWS_") {
        if let Ok(AmazonS3ConfigKey::Client(key)) = name.to_ascii_lowercase().parse()
            && key != ClientConfigKey::AllowHttp
        {
            http_options = http_options.with_config(key, value);
        }
    }
    http_options
}
