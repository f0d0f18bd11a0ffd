//! Sends the spans of calls, queries and attempts to an OpenTelemetry collector, in batches and from a thread of its own.
//!
//! A span that ends goes into a bounded queue, without waiting. A collector that is slow or gone costs spans.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use opentelemetry::{
    Context, KeyValue,
    trace::{Span as _, SpanBuilder, Status, TraceContextExt, TracerProvider},
};
use opentelemetry_otlp::{
    SpanExporter as OtlpExporter, WithExportConfig, WithTonicConfig, tonic_types::transport::ClientTlsConfig,
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{
        BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter,
    },
};
use parking_lot::Mutex;
use tracing::warn;

use super::TraceContext;

/// Spans that wait to be sent; more are dropped. Each takes about a kilobyte.
const QUEUE_MAX_SPANS: usize = 8 * 1024;
const BATCH_MAX_SPANS: usize = 1024;
/// Time that a span waits for others to be sent with.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Time that the collector may take for a batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two warnings about a failing collector.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);
/// Length of the longest description of a failure: it may quote a worker.
const DESCRIPTION_MAX_BYTES: usize = 1_024;

/// Set at most once, when the export starts.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// The export of spans to a collector.
#[derive(Debug)]
pub struct SpanExport(SdkTracerProvider);

impl SpanExport {
    /// Exports the spans that begin from now on. Must be called once, within the runtime.
    pub fn start(endpoint: &str, sample: f64) -> Result<Self, String> {
        let mut exporter = OtlpExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(EXPORT_TIMEOUT);
        if endpoint.starts_with("https:") {
            exporter = exporter.with_tls_config(ClientTlsConfig::new().with_native_roots());
        }
        let exporter = exporter.build().map_err(|error| error.to_string())?;
        let exporter = WarningExporter { exporter, endpoint: endpoint.into(), failures: Mutex::default() };
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_MAX_SPANS)
            .with_max_export_batch_size(BATCH_MAX_SPANS)
            .with_scheduled_delay(EXPORT_INTERVAL)
            .build();
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::new(exporter, batches))
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(sample))))
            .with_resource(Resource::builder().with_service_name("remuda").with_attribute(version).build())
            .build();
        TRACER.set(provider.tracer("remuda")).map_err(|_| "spans are exported already".to_owned())?;
        Ok(Self(provider))
    }

    /// Sends the remaining spans within `limit`. Blocks; the runtime must still run.
    pub fn stop(&self, limit: Duration) {
        // Spans that cannot be sent are lost; the exporter has warned about it.
        let _ = self.0.shutdown_with_timeout(limit);
    }
}

/// Logs a warning now and then while the collector does not accept spans.
#[derive(Debug)]
struct WarningExporter {
    exporter: OtlpExporter,
    endpoint: Box<str>,
    failures: Mutex<ExportFailures>,
}

#[derive(Debug, Default)]
struct ExportFailures {
    last_warning: Option<Instant>,
    /// Spans lost since then.
    lost: usize,
}

impl SpanExporter for WarningExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        if let Err(error) = &result {
            let mut failures = self.failures.lock();
            failures.lost += spans;
            if failures.last_warning.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                warn!(endpoint = self.endpoint, lost = failures.lost, "cannot export spans: {error}");
                *failures = ExportFailures { last_warning: Some(Instant::now()), lost: 0 };
            }
        }
        result
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// A span that is exported when it is dropped, if its trace is sampled.
#[derive(Debug)]
pub(super) struct ExportedSpan(Box<Span>);

impl ExportedSpan {
    /// `None` if nothing is exported.
    pub(super) fn begin(parent: Option<&TraceContext>, build: impl FnOnce() -> SpanBuilder) -> Option<Self> {
        let tracer = TRACER.get()?;
        let parent = parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent.clone()));
        Some(Self(Box::new(build().start_with_context(tracer, &parent))))
    }

    pub(super) fn context(&self) -> TraceContext {
        self.0.span_context().clone()
    }

    pub(super) fn set(&mut self, attribute: KeyValue) {
        self.0.set_attribute(attribute);
    }

    pub(super) fn rename(&mut self, name: &'static str) {
        self.0.update_name(name);
    }

    pub(super) fn set_error(&mut self, description: &str) {
        let description = &description[..description.floor_char_boundary(DESCRIPTION_MAX_BYTES)];
        self.0.set_status(Status::error(description.to_owned()));
    }
}
