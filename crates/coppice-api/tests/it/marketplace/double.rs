//! A double of AWS: it resolves buyers, takes usage, and has a queue, and refuses what AWS refuses of that. It was written
//! from AWS's documents and the model of its client, which understands it and by which its requests are checked; AWS
//! itself does not answer here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use chrono::{DateTime, TimeDelta, Utc};
use coppice_app::{AwsIdentity, AwsMarketplaceConfig, MeteredDimension};
use coppice_core::usage::Meter;
use parking_lot::Mutex;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::double::serve;

/// Who asks.
pub(crate) const KEY: (&str, &str) = ("AKIAPLANTED000000001", "planted/secret+of+the+seller0000000000000");
/// The product.
pub(crate) const PRODUCT: &str = "aw0codeofourproduct000001";
const DIMENSIONS: [&str; 2] = ["micro_hours", "storage"];

/// What it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The service and the operation.
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) status: u16,
}

/// Who bought what, by the token of their browser.
#[derive(Clone)]
struct Buyer {
    license: String,
    account: String,
    product: String,
    is_expired: bool,
}

#[derive(Default)]
struct Known {
    buyers: BTreeMap<String, Buyer>,
    /// Licenses by which nobody pays any more.
    ended: BTreeSet<String>,
    /// Usage that is charged, by license, dimension and hour.
    charged: BTreeMap<(String, String, i64), String>,
    /// Answers with what is not processed, that are still to be given.
    unprocessed: usize,
    messages: Vec<(String, String)>,
    asked: Vec<Asked>,
    is_down: bool,
    made: usize,
}

/// AWS.
#[derive(Clone)]
pub(crate) struct Double {
    known: Arc<Mutex<Known>>,
    url: String,
}

type Answered = Result<Value, &'static str>;

impl Double {
    pub(crate) fn start() -> Self {
        let known = Arc::<Mutex<Known>>::default();
        let router = Router::new().fallback(answer).with_state(known.clone());
        let url = serve(router);
        Self { known, url }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// As the platform knows it.
    pub(crate) fn config(&self) -> AwsMarketplaceConfig {
        let dimension = |meter, instance_type: &str, dimension: &str| MeteredDimension {
            meter,
            instance_type: instance_type.to_owned(),
            dimension: dimension.to_owned(),
        };
        AwsMarketplaceConfig {
            product_code: PRODUCT.to_owned(),
            region: "us-east-1".to_owned(),
            identity: AwsIdentity::Key { id: KEY.0.to_owned(), secret: Zeroizing::new(KEY.1.to_owned()) },
            dimensions: vec![
                dimension(Meter::Awake, "micro", "micro_hours"),
                dimension(Meter::Storage, "", "storage"),
                dimension(Meter::Egress, "", "of_no_product"),
            ],
            metering: self.url.parse().expect("an address"),
            queue: format!("{}/123456789012/coppice", self.url).parse().expect("an address"),
            queue_region: "eu-west-1".to_owned(),
        }
    }

    /// Has somebody buy something; their browser has this token.
    pub(crate) fn buy(&self, token: &str, license: &str, account: &str) {
        let buyer = Buyer {
            license: format!("arn:aws:license-manager::294406891311:license:{license}"),
            account: account.to_owned(),
            product: PRODUCT.to_owned(),
            is_expired: false,
        };
        self.known.lock().buyers.insert(token.to_owned(), buyer);
    }

    /// Has a token be of another product.
    pub(crate) fn be_other(&self, token: &str) {
        self.known.lock().buyers.get_mut(token).expect("a buyer").product = "aw0other".to_owned();
    }

    /// Has a token be too old.
    pub(crate) fn expire(&self, token: &str) {
        self.known.lock().buyers.get_mut(token).expect("a buyer").is_expired = true;
    }

    /// Says that nobody pays by a license any more.
    pub(crate) fn end(&self, license: &str) {
        self.known.lock().ended.insert(license.to_owned());
    }

    /// Fails at everything, or no more.
    pub(crate) fn go_down(&self, is_down: bool) {
        self.known.lock().is_down = is_down;
    }

    /// Does not process so many requests.
    pub(crate) fn be_busy(&self, requests: usize) {
        self.known.lock().unprocessed = requests;
    }

    /// Has been told usage by somebody else.
    pub(crate) fn charge(&self, license: &str, dimension: &str, hour: DateTime<Utc>, quantity: &str) {
        let key = (license.to_owned(), dimension.to_owned(), hour.timestamp());
        self.known.lock().charged.insert(key, quantity.to_owned());
    }

    /// The usage that is charged by a license: dimensions, hours and quantities.
    pub(crate) fn charged(&self, license: &str) -> Vec<(String, DateTime<Utc>, String)> {
        let known = self.known.lock();
        let of = known.charged.iter().filter(|((of, ..), _)| of == license);
        let time = |seconds: i64| DateTime::from_timestamp(seconds, 0).expect("a time");
        of.map(|((_, dimension, hour), quantity)| (dimension.clone(), time(*hour), quantity.clone()))
            .collect()
    }

    /// Puts a message into the queue.
    pub(crate) fn tell(&self, body: &str) {
        let mut known = self.known.lock();
        let handle = known.id("handle");
        known.messages.push((handle, body.to_owned()));
    }

    /// How many messages nobody has removed.
    pub(crate) fn waiting(&self) -> usize {
        self.known.lock().messages.len()
    }

    /// What it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.known.lock().asked.clone()
    }
}

fn license_of(arn: &str) -> &str {
    arn.rsplit(':').next().unwrap_or(arn)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

async fn answer(State(known): State<Arc<Mutex<Known>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 20).await.expect("a body of less than 1 MiB");
    let mut known = known.lock();
    if known.is_down {
        return (StatusCode::SERVICE_UNAVAILABLE, "<html>").into_response();
    }
    let target = header(&parts.headers, "x-amz-target").to_owned();
    let credential = format!("Credential={}/", KEY.0);
    let answered = match header(&parts.headers, "authorization").contains(&credential) {
        false => Err("UnrecognizedClientException"),
        true => known.carry_out(&target, &serde_json::from_slice(&bytes).unwrap_or(Value::Null)),
    };
    let (status, told) = match answered {
        Ok(value) => (StatusCode::OK, value),
        Err(kind) => (StatusCode::BAD_REQUEST, json!({ "__type": kind, "message": format!("{kind} it is") })),
    };
    let headers = parts
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    known.asked.push(Asked {
        target,
        headers: headers.collect(),
        body: String::from_utf8_lossy(&bytes).into_owned(),
        status: status.as_u16(),
    });
    (status, Json(told)).into_response()
}

impl Known {
    fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{}", self.made)
    }

    fn carry_out(&mut self, target: &str, body: &Value) -> Answered {
        match target {
            "AWSMPMeteringService.ResolveCustomer" => {
                let buyer =
                    self.buyers.get(text(&body["RegistrationToken"])).ok_or("InvalidTokenException")?;
                if buyer.is_expired {
                    return Err("ExpiredTokenException");
                }
                Ok(json!({
                    "CustomerAWSAccountId": buyer.account, "LicenseArn": buyer.license, "ProductCode": buyer.product,
                    "Metadata": { "AgreementId": "agmt-1" },
                }))
            }
            "AWSMPMeteringService.BatchMeterUsage" => self.meter(body),
            "AmazonSQS.ReceiveMessage" => {
                let of = |(handle, body): &(String, String)| json!({ "MessageId": handle, "ReceiptHandle": handle, "Body": body });
                let messages: Vec<_> = self.messages.iter().take(10).map(of).collect();
                Ok(if messages.is_empty() { json!({}) } else { json!({ "Messages": messages }) })
            }
            "AmazonSQS.DeleteMessage" => {
                self.messages.retain(|(handle, _)| *handle != text(&body["ReceiptHandle"]));
                Ok(json!({}))
            }
            _ => Err("UnknownOperationException"),
        }
    }

    fn meter(&mut self, body: &Value) -> Answered {
        let records = body["UsageRecords"].as_array().ok_or("ValidationException")?;
        if records.len() > 25 || body.get("ProductCode").is_some() {
            return Err("ValidationException");
        }
        let now = Utc::now();
        for record in records {
            let hour =
                DateTime::from_timestamp(record["Timestamp"].as_i64().ok_or("ValidationException")?, 0);
            let hour = hour.ok_or("ValidationException")?;
            if hour > now || now - hour >= TimeDelta::hours(24) {
                return Err("TimestampOutOfBoundsException");
            }
            if !DIMENSIONS.contains(&text(&record["Dimension"])) {
                return Err("InvalidUsageDimensionException");
            }
            let is_known = |buyer: &Buyer| {
                buyer.license == text(&record["LicenseArn"])
                    && buyer.account == text(&record["CustomerAWSAccountId"])
            };
            if !self.buyers.values().any(is_known) {
                return Err("InvalidLicenseException");
            }
        }
        if self.unprocessed > 0 {
            self.unprocessed -= 1;
            return Ok(json!({ "Results": [], "UnprocessedRecords": records }));
        }
        let results: Vec<_> = records.iter().map(|record| self.meter_one(record)).collect();
        Ok(json!({ "Results": results, "UnprocessedRecords": [] }))
    }

    fn meter_one(&mut self, record: &Value) -> Value {
        let license = license_of(text(&record["LicenseArn"])).to_owned();
        let quantity = text(&record["QuantityAsDecimal"]).to_owned();
        let hour = record["Timestamp"].as_i64().unwrap_or_default();
        let key = (license.clone(), text(&record["Dimension"]).to_owned(), hour);
        let status = match self.charged.get(&key) {
            _ if self.ended.contains(&license) => "CustomerNotSubscribed",
            Some(other) if *other != quantity => "DuplicateRecord",
            _ => {
                self.charged.insert(key, quantity);
                "Success"
            }
        };
        json!({ "UsageRecord": record, "MeteringRecordId": self.id("record"), "Status": status })
    }
}
