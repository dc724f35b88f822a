//! Traces, as a collector gets them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use coppice_test_support::{Options, Platform, wait_for};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use crate::http::Http;
use crate::setup::{PROGRAM, options};

const PATIENCE: Duration = Duration::from_secs(60);

/// Takes traces in, for as long as the tests run.
struct Collector {
    endpoint: String,
    requests: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::<Mutex<Vec<_>>>::default();
        let kept = requests.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let kept = kept.clone();
                std::thread::spawn(move || serve(client.expect("a client"), &kept));
            }
        });
        Self { endpoint, requests }
    }

    fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock().expect("no test panics with it");
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        resources.flat_map(|of| &of.scope_spans).flat_map(|of| of.spans.clone()).collect()
    }

    fn service(&self) -> Option<String> {
        let requests = self.requests.lock().expect("no test panics with it");
        let resource = requests.first()?.resource_spans.first()?.resource.as_ref()?;
        resource
            .attributes
            .iter()
            .find(|pair| pair.key == "service.name")
            .map(|pair| text(pair.value.as_ref()))
    }
}

fn text(value: Option<&opentelemetry_proto::tonic::common::v1::AnyValue>) -> String {
    match value.and_then(|value| value.value.clone()) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn attributes(span: &Span) -> HashMap<&str, String> {
    span.attributes.iter().map(|pair| (pair.key.as_str(), text(pair.value.as_ref()))).collect()
}

/// Answers requests until the connection ends.
fn serve(stream: TcpStream, kept: &Mutex<Vec<ExportTraceServiceRequest>>) {
    let mut writer = stream.try_clone().expect("a second descriptor");
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut line) = (vec![], String::new());
        while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
            head.push(std::mem::take(&mut line).trim().to_ascii_lowercase());
        }
        let Some(first) = head.first() else { return };
        assert_eq!(first, "post /v1/traces http/1.1");
        assert!(head.contains(&"content-type: application/x-protobuf".to_owned()), "{head:?}");
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        let mut body = vec![0; length.parse().expect("a number")];
        reader.read_exact(&mut body).expect("a body");
        kept.lock()
            .expect("no test panics with it")
            .push(ExportTraceServiceRequest::decode(&*body).expect("OTLP"));
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        writer.write_all(answer).expect("the client listens");
    }
}

fn tracing_to(endpoint: &str) -> Platform {
    let flags = ["--otlp-endpoint", endpoint].map(str::to_owned).to_vec();
    Platform::start(PROGRAM, Options { flags, ..options() })
}

#[test]
fn a_request_goes_on_with_the_trace_of_its_caller() {
    let collector = Collector::start();
    let http = Http::new(tracing_to(&collector.endpoint));
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let request = http.request("GET", "/organizations/{org}/projects");
    http.send(request.header("traceparent", format!("00-{trace}-{parent}-01"))).expect(200);
    assert_eq!(http.platform.sql("main", "SELECT 1"), "1");

    let in_trace =
        || -> Vec<_> { collector.spans().into_iter().filter(|span| hex(&span.trace_id) == trace).collect() };
    let spans = wait_for("the spans arrive", PATIENCE, || {
        let found = in_trace();
        found.iter().any(|span| hex(&span.parent_span_id) == parent).then_some(found)
    });
    let named = |spans: &[Span], name: &str| {
        spans
            .iter()
            .find(|span| span.name == name)
            .cloned()
            .unwrap_or_else(|| panic!("no `{name}` in {spans:#?}"))
    };
    let top = named(&spans, "GET /organizations/{organizationID}/projects");
    assert_eq!(hex(&top.parent_span_id), parent);
    let told = attributes(&top);
    assert_eq!(told["http.response.status_code"], "200");
    assert_eq!(told["coppice.operation"], "listProjects");
    assert!(told["coppice.request_id"].starts_with("req_"), "{told:?}");
    // From the request over the app to the metastore.
    let below = |span: &Span| {
        spans.iter().filter(|it| it.parent_span_id == span.span_id).cloned().collect::<Vec<_>>()
    };
    let request = named(&below(&top), "request");
    let authenticate = named(&below(&request), "authenticate");
    let read = named(&below(&authenticate), "metastore read");
    assert!(read.events.iter().any(|event| event.attributes.iter().any(|pair| pair.key.contains("summary"))));
    assert_eq!(collector.service().as_deref(), Some("coppice"));

    // A client's startup, and the steps that made its branch.
    let all = wait_for("the spans of the client arrive", PATIENCE, || {
        let all = collector.spans();
        all.iter().any(|span| span.name == "reach").then_some(all)
    });
    let startup = named(&all, "startup");
    let stages = all.iter().filter(|span| span.parent_span_id == startup.span_id);
    let stages: Vec<_> = stages.map(|span| span.name.as_str()).collect();
    assert_eq!(stages, ["find", "authenticate", "reach"]);
    let reconcile = named(&all, "reconcile");
    assert!(all.iter().any(|span| span.parent_span_id == reconcile.span_id && span.name == "start"));
    let everything = format!("{all:?}");
    for secret in [http.admin(), &http.platform.connection_string("main")] {
        assert!(!everything.contains(secret), "a secret is in a trace");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_last_spans_are_sent_before_the_end() {
    let collector = Collector::start();
    let http = Http::new(tracing_to(&collector.endpoint));
    let trace = "1af7651916cd43dd8448eb211c80319c";
    let request =
        http.request("GET", "/user").header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"));
    http.send(request).expect(200);
    let mut http = http;
    assert_eq!(http.platform.terminate(), Some(0));
    assert!(collector.spans().iter().any(|span| hex(&span.trace_id) == trace), "the queue was not emptied");
}

#[test]
fn a_caller_keeps_no_request_out_of_the_traces() {
    let collector = Collector::start();
    let mut http = Http::new(tracing_to(&collector.endpoint));
    let trace = "2af7651916cd43dd8448eb211c80319c";
    let request =
        http.request("GET", "/user").header("traceparent", format!("00-{trace}-b7ad6b7169203331-00"));
    http.send(request).expect(200);
    assert_eq!(http.platform.terminate(), Some(0));
    let spans = collector.spans();
    let top = spans.iter().find(|span| span.name == "GET /user").expect("a span of it");
    assert!(top.parent_span_id.is_empty() && hex(&top.trace_id) != trace, "{top:?}");
}

#[test]
fn a_collector_that_is_away_or_hangs_disturbs_nothing() {
    // Takes connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let hanging = format!("http://{}", silent.local_addr().expect("an address"));
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address");
    for endpoint in [format!("http://{free}"), hanging] {
        let mut http = Http::new(tracing_to(&endpoint));
        for _ in 0..50 {
            http.get("/organizations").expect(200);
        }
        assert_eq!(http.platform.sql("main", "SELECT 1"), "1");
        let is_away = endpoint.contains(&free.to_string());
        if is_away {
            let is_said = || http.platform.log().contains("traces don't reach their collector").then_some(());
            wait_for("the log says so", PATIENCE, is_said);
            let log = http.platform.log();
            assert_eq!(log.matches("don't reach their collector").count(), 1, "once is enough:\n{log}");
        }
        let began = Instant::now();
        assert_eq!(http.platform.terminate(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(30), "the end waits for nobody");
    }
}

#[test]
fn an_endpoint_that_is_none_ends_the_start_with_an_example() {
    let output = std::process::Command::new(PROGRAM)
        .args(["serve", "--otlp-endpoint", "localhost:4318", "--data-dir", "/nonexistent/coppice"])
        .output()
        .expect("the executable runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("`localhost:4318` is no endpoint for traces: write for example"), "{said}");
}
