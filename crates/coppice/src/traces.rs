//! Traces for a collector that understands OTLP over HTTP: what a request, a
//! client's startup or a step on a branch spent its time with.
//!
//! Off unless an endpoint is named; then spans of this program's own parts are
//! kept in a queue and sent in the background. A collector that is away costs
//! spans and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use coppice_core::error::chain;
use opentelemetry::KeyValue;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Status, TraceContextExt as _, TracerProvider as _};
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use reqwest::redirect::Policy;
use tracing::{Instrument as _, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

const SERVICE: &str = "coppice";
/// Where a collector takes traces (OTLP specification, "OTLP/HTTP Request").
const PATH: &str = "v1/traces";
/// How long the collector may take for one batch.
const SEND_PATIENCE: Duration = Duration::from_secs(10);
/// How long the last batch may take at the end.
const FLUSH_PATIENCE: Duration = Duration::from_secs(3);

/// Sends spans until it is finished.
pub(crate) struct Traces {
    provider: SdkTracerProvider,
}

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| !value.is_empty())
}

impl Traces {
    /// Begins to collect, if an endpoint is named, by the setting or by the
    /// variables that every program with OTLP understands. To be called within
    /// a Tokio runtime.
    pub(crate) fn start(endpoint: Option<&str>) -> anyhow::Result<Option<Self>> {
        let is_named = endpoint.is_some()
            || is_set(opentelemetry_otlp::OTEL_EXPORTER_OTLP_ENDPOINT)
            || is_set(opentelemetry_otlp::OTEL_EXPORTER_OTLP_TRACES_ENDPOINT);
        if !is_named || std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value == "true") {
            return Ok(None);
        }
        let collector = Collector::new().context("making a client")?;
        let mut builder = opentelemetry_otlp::SpanExporter::builder().with_http().with_http_client(collector);
        if let Some(endpoint) = endpoint {
            if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
                bail!("`{endpoint}` is no endpoint for traces: write for example http://127.0.0.1:4318");
            }
            builder = builder.with_endpoint(format!("{}/{PATH}", endpoint.trim_end_matches('/')));
        }
        let exporter = builder.build().context("preparing the export of traces")?;
        let resource = Resource::builder();
        let resource =
            if is_set("OTEL_SERVICE_NAME") { resource } else { resource.with_service_name(SERVICE) };
        let resource = resource.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build());
        Ok(Some(Self { provider: provider.build() }))
    }

    /// Takes spans of this program's parts, and the statements on the metastore
    /// (without their values) as events of them.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let tracer: SdkTracer = self.provider.tracer(SERVICE);
        let wanted = Targets::new()
            .with_target(SERVICE, LevelFilter::DEBUG)
            .with_target("sqlx::query", LevelFilter::DEBUG);
        // Names of threads and lines of code would be most of what is sent.
        let layer = tracing_opentelemetry::layer().with_threads(false).with_location(false);
        layer.with_tracer(tracer).with_filter(wanted)
    }

    /// Sends what is left, as far as that goes quickly.
    pub(crate) async fn finish(self) {
        let provider = self.provider;
        let last = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_PATIENCE));
        match tokio::time::timeout(FLUSH_PATIENCE + Duration::from_secs(1), last).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::debug!("the last traces were not sent: {error}"),
            Ok(Err(_)) | Err(_) => tracing::debug!("the last traces were not sent in time"),
        }
    }
}

/// The way to the collector. Batches are sent by a thread without a runtime,
/// so the work is done on ours.
#[derive(Clone, Debug)]
struct Collector {
    client: reqwest::Client,
    runtime: tokio::runtime::Handle,
    is_away: Arc<AtomicBool>,
}

impl Collector {
    fn new() -> reqwest::Result<Self> {
        // Whoever answers there sends spans nowhere else.
        let client = reqwest::Client::builder().timeout(SEND_PATIENCE).redirect(Policy::none()).build()?;
        Ok(Self { client, runtime: tokio::runtime::Handle::current(), is_away: Arc::default() })
    }

    /// Says when things change, not each time.
    fn note(&self, trouble: Option<String>) {
        let was_away = self.is_away.swap(trouble.is_some(), Ordering::Relaxed);
        match trouble {
            Some(trouble) if !was_away => {
                tracing::warn!("traces don't reach their collector, and are lost until they do: {trouble}");
            }
            None if was_away => tracing::info!("the collector takes traces again"),
            Some(_) | None => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(
        &self,
        request: axum::http::Request<Bytes>,
    ) -> Result<axum::http::Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sending = self.runtime.spawn(async move {
            let mut response = client.execute(request.try_into()?).await?;
            let mut answer = axum::http::Response::builder().status(response.status());
            if let Some(headers) = answer.headers_mut() {
                std::mem::swap(headers, response.headers_mut());
            }
            // Nothing is made of what it says, so none of it is read.
            Ok::<_, HttpError>(answer.body(Bytes::new())?)
        });
        let sent = sending.await.map_err(HttpError::from).flatten();
        self.note(match &sent {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(chain(&**error)),
        });
        sent
    }
}

/// Gives every request a span, a child of the caller's where its `traceparent` names one
/// that is recorded: whether this one is, is not the caller's to say.
pub(crate) async fn trace_request(request: Request, next: Next) -> Response {
    let caller = TraceContextPropagator::new().extract(&HeaderExtractor(request.headers()));
    let span = tracing::debug_span!("http", otel.kind = "server");
    if caller.span().span_context().is_sampled() {
        // Fails only where the span is not collected.
        let _ = span.set_parent(caller);
    }
    let method = request.method().clone();
    span.set_attribute("http.request.method", method.to_string());
    let response = next.run(request).instrument(span.clone()).await;
    if let Some(route) = response.extensions().get::<Arc<coppice_api::RequestRoute>>() {
        span.context().span().update_name(format!("{method} {}", route.pattern));
        span.set_attribute("http.route", route.pattern.to_string());
        span.set_attribute("coppice.operation", route.operation.to_string());
    }
    if let Some(id) = response.headers().get("x-request-id").and_then(|id| id.to_str().ok()) {
        span.set_attribute("coppice.request_id", id.to_owned());
    }
    span.set_attribute("http.response.status_code", i64::from(response.status().as_u16()));
    if response.status().is_server_error() {
        span.set_status(Status::error(""));
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::{Request, StatusCode};
    use axum::response::Redirect;
    use axum::routing::any;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_collector_that_names_another_place_sends_nothing_there() {
        let (came, mut comes) = mpsc::channel(1);
        let elsewhere = any(async move || came.send(()).await.expect("somebody looks"));
        let routes = Router::new()
            .route("/", any(async || Redirect::temporary("/elsewhere")))
            .route("/elsewhere", elsewhere);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("its address");
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let request = Request::post(format!("http://{at}/")).body(Bytes::from("spans")).expect("a request");
        let answer = Collector::new().expect("a client").send_bytes(request).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::TEMPORARY_REDIRECT);
        assert!(comes.try_recv().is_err());
    }
}
