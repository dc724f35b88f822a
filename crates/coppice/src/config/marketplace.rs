//! AWS Marketplace: flags, variables, or the table `aws_marketplace` of the file.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use coppice_app::{AwsIdentity, AwsMarketplaceConfig, MeteredDimension};
use coppice_core::usage::Meter;
use reqwest::Url;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::sign_in::read_secret;

/// Where AWS is told what is used, and where EventBridge has what becomes of subscriptions, if not said otherwise.
const REGION: &str = "us-east-1";

/// Settings as they can be written in each place. The key is in a file: a flag
/// would show it to everybody on the machine.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MarketplaceArgs {
    /// The product code of your product at AWS Marketplace, through which organizations can be billed then; see
    /// docs/billing.md
    #[arg(long, env = "COPPICE_AWS_MARKETPLACE_PRODUCT_CODE", value_name = "CODE")]
    #[serde(rename = "product_code")]
    aws_marketplace_product_code: Option<String>,
    /// What the product charges, as METER=DIMENSION with commas between, for example
    /// awake:micro=micro_hours,storage=storage_gib_hours
    #[arg(
        long,
        env = "COPPICE_AWS_MARKETPLACE_DIMENSIONS",
        value_name = "DIMENSIONS",
        value_delimiter = ','
    )]
    #[serde(rename = "dimensions")]
    aws_marketplace_dimensions: Option<Vec<String>>,
    /// The queue (SQS) into which EventBridge puts what becomes of subscriptions
    #[arg(long, env = "COPPICE_AWS_MARKETPLACE_QUEUE", value_name = "URL")]
    #[serde(rename = "queue")]
    aws_marketplace_queue: Option<String>,
    /// A file with an access key of the seller's account: its id and its secret, a line each [default: AWS_… variables,
    /// or the machine's role]
    #[arg(long, env = "COPPICE_AWS_MARKETPLACE_KEY_FILE", value_name = "FILE")]
    #[serde(rename = "key_file")]
    aws_marketplace_key_file: Option<PathBuf>,
    /// The region in which AWS is told what is used [default: us-east-1]
    #[arg(long, env = "COPPICE_AWS_MARKETPLACE_REGION", value_name = "REGION")]
    #[serde(rename = "region")]
    aws_marketplace_region: Option<String>,
    /// Where AWS is told, if not there itself [default: https://metering.marketplace.REGION.amazonaws.com]
    #[arg(long, env = "COPPICE_AWS_MARKETPLACE_API_URL", value_name = "URL")]
    #[serde(rename = "api_url")]
    aws_marketplace_api_url: Option<String>,
}

impl MarketplaceArgs {
    /// What is set here, else what is set there.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            aws_marketplace_product_code: self
                .aws_marketplace_product_code
                .or(other.aws_marketplace_product_code),
            aws_marketplace_dimensions: self.aws_marketplace_dimensions.or(other.aws_marketplace_dimensions),
            aws_marketplace_queue: self.aws_marketplace_queue.or(other.aws_marketplace_queue),
            aws_marketplace_key_file: self.aws_marketplace_key_file.or(other.aws_marketplace_key_file),
            aws_marketplace_region: self.aws_marketplace_region.or(other.aws_marketplace_region),
            aws_marketplace_api_url: self.aws_marketplace_api_url.or(other.aws_marketplace_api_url),
        }
    }

    /// The product, if there is one.
    pub(super) fn marketplace(self) -> anyhow::Result<Option<AwsMarketplaceConfig>> {
        // A variable that is set to nothing says nothing.
        let set = |text: Option<String>| text.filter(|text| !text.is_empty());
        let Some(product_code) = set(self.aws_marketplace_product_code) else { return Ok(None) };
        let needs = |setting: &str| {
            anyhow::anyhow!(
                "with aws-marketplace-product-code, {setting} has to be set too: see docs/billing.md"
            )
        };
        let dimensions = self.aws_marketplace_dimensions.unwrap_or_default();
        let dimensions =
            dimensions.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).map(dimension);
        let dimensions = dimensions.collect::<anyhow::Result<Vec<_>>>()?;
        if dimensions.is_empty() {
            return Err(needs("aws-marketplace-dimensions"));
        }
        let queue = set(self.aws_marketplace_queue).ok_or_else(|| needs("aws-marketplace-queue"))?;
        let queue = place("aws-marketplace-queue", &queue)?;
        let region = set(self.aws_marketplace_region).unwrap_or_else(|| REGION.to_owned());
        if !region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
            bail!("aws-marketplace-region `{region}` is no region: write for example {REGION}");
        }
        let api = set(self.aws_marketplace_api_url);
        let api = api.unwrap_or_else(|| format!("https://metering.marketplace.{region}.amazonaws.com"));
        let metering = place("aws-marketplace-api-url", &api)?;
        let key_file = self.aws_marketplace_key_file.filter(|path| !path.as_os_str().is_empty());
        Ok(Some(AwsMarketplaceConfig {
            product_code,
            identity: key_file.as_deref().map_or(Ok(AwsIdentity::Machine), read_key)?,
            dimensions,
            metering,
            queue_region: region_of(&queue).unwrap_or(REGION).to_owned(),
            queue,
            region,
        }))
    }
}

fn place(setting: &str, text: &str) -> anyhow::Result<Url> {
    let is_place =
        |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
    let place = Url::parse(text).ok().filter(is_place);
    place.with_context(|| format!("{setting} `{text}` is no address: write for example https://sqs.us-east-1.amazonaws.com/123456789012/coppice"))
}

/// The region in the host name of a queue of AWS.
fn region_of(queue: &Url) -> Option<&str> {
    let rest = queue.host_str()?.strip_prefix("sqs.")?;
    rest.split_once(".amazonaws.com").map(|(region, _)| region)
}

/// `awake:TYPE=NAME`, or another meter's `METER=NAME`.
fn dimension(text: &str) -> anyhow::Result<MeteredDimension> {
    let wrong = || {
        format!(
            "aws-marketplace-dimensions: `{text}` is no METER=DIMENSION; meters are awake:TYPE, asleep, storage, shared \
             and egress"
        )
    };
    let (metered, dimension) = text.split_once('=').with_context(wrong)?;
    let (meter, instance_type) = metered.split_once(':').unwrap_or((metered, ""));
    let meter = Meter::parse(meter).with_context(wrong)?;
    let is_name = !dimension.is_empty()
        && dimension.len() <= 255
        && dimension.bytes().all(|byte| byte.is_ascii_graphic());
    if (meter == Meter::Awake) == instance_type.is_empty() || !is_name {
        bail!(wrong());
    }
    let (instance_type, dimension) = (instance_type.to_owned(), dimension.to_owned());
    Ok(MeteredDimension { meter, instance_type, dimension })
}

fn read_key(path: &Path) -> anyhow::Result<AwsIdentity> {
    let text = read_secret(path)?;
    let mut words = text.split_ascii_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(id), Some(secret), None) => {
            Ok(AwsIdentity::Key { id: id.to_owned(), secret: Zeroizing::new(secret.to_owned()) })
        }
        _ => bail!("{} holds no access key: write its id and its secret, a line each", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marketplace(text: &str) -> anyhow::Result<Option<AwsMarketplaceConfig>> {
        MarketplaceArgs::default().or(toml::from_str(text)?).marketplace()
    }

    #[test]
    fn a_product_is_whole_and_its_key_is_shown_to_nobody() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        let (key, bad) = (file("key", "AKIAPLANTED\nplanted/secret+\n"), file("bad", "AKIAPLANTED"));
        let text = |dimensions: &str, queue: &str, more: &str| {
            format!("product_code = \"ours\"\ndimensions = [{dimensions}]\nqueue = {queue:?}\n{more}")
        };
        let queue = "https://sqs.eu-west-1.amazonaws.com/1/q";
        let good = text("\"awake:micro=m\", \"storage=s\"", queue, &format!("key_file = {key:?}"));
        let good = marketplace(&good).expect("settings").expect("a product");
        assert_eq!(good.metering.as_str(), "https://metering.marketplace.us-east-1.amazonaws.com/");
        assert_eq!((good.queue_region.as_str(), good.dimensions.len()), ("eu-west-1", 2));
        assert!(matches!(&good.identity, AwsIdentity::Key { id, .. } if id == "AKIAPLANTED"));
        assert!(!format!("{good:?}").to_lowercase().contains("planted"), "{good:?}");
        assert!(marketplace("").expect("nothing").is_none());
        for (text, told) in [
            ("product_code = \"ours\"".to_owned(), "aws-marketplace-dimensions has to be set"),
            (text("\"storage=s\"", "", ""), "aws-marketplace-queue has to be set"),
            (text("\"storage=s\"", "sqs", ""), "is no address"),
            (text("\"storage=s\"", queue, "region = \"a.evil.example/\""), "is no region"),
            (text("\"storage=s\"", queue, &format!("key_file = {bad:?}")), "holds no access key"),
            (text("\"awake=m\"", queue, ""), "is no METER=DIMENSION"),
            (text("\"storage:micro=m\"", queue, ""), "is no METER=DIMENSION"),
            (text("\"egress\"", queue, ""), "is no METER=DIMENSION"),
            (text("\"tea=t\"", queue, ""), "is no METER=DIMENSION"),
        ] {
            let error = format!("{:#}", marketplace(&text).expect_err(&text));
            assert!(error.contains(told) && !error.to_lowercase().contains("planted"), "{text}: {error}");
        }
    }
}
