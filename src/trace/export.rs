//! Sends the spans of calls, queries and attempts to an OpenTelemetry collector, in batches and by a thread of its own.
//!
//! Whoever ends a span puts it into a bounded queue, without waiting. A collector that is slow or gone costs spans.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use opentelemetry::{
    Context as Parent, KeyValue,
    trace::{
        Span as _, SpanBuilder, SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId as OtelTraceId,
        TracerProvider,
    },
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

use super::{Context, TraceId};

/// Spans that wait to be sent; more are dropped. Each takes about a kilobyte.
const MAX_WAITING: usize = 8 * 1024;
const MAX_BATCH: usize = 1024;
/// How long a span waits for others to travel with.
const SEND_EVERY: Duration = Duration::from_secs(1);
/// What the collector may take for a batch.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a collector that does not work is complained about.
const COMPLAIN_EVERY: Duration = Duration::from_mins(1);
/// The longest description of a failure, in bytes: it may quote a worker.
const MAX_DESCRIPTION: usize = 1_024;

/// Set once, if at all: whoever begins a span looks here.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// The way to the collector.
#[derive(Debug)]
pub struct Export(SdkTracerProvider);

impl Export {
    /// Spans that begin from now on are exported. Must be called once, within the runtime.
    pub fn start(endpoint: &str, sample: f64) -> Result<Self, String> {
        let mut exporter = OtlpExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(SEND_TIMEOUT);
        if endpoint.starts_with("https:") {
            exporter = exporter.with_tls_config(ClientTlsConfig::new().with_native_roots());
        }
        let exporter = exporter.build().map_err(|error| error.to_string())?;
        let exporter = Complaining { exporter, endpoint: endpoint.into(), trouble: Mutex::default() };
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(MAX_WAITING)
            .with_max_export_batch_size(MAX_BATCH)
            .with_scheduled_delay(SEND_EVERY)
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

    /// Sends what is left, for as long as that may take. Blocks; the runtime must still be there.
    pub fn stop(&self, limit: Duration) {
        // What cannot be sent is lost, and was complained about.
        let _ = self.0.shutdown_with_timeout(limit);
    }
}

/// Tells now and then that the collector does not take what it is sent.
#[derive(Debug)]
struct Complaining {
    exporter: OtlpExporter,
    endpoint: Box<str>,
    trouble: Mutex<Trouble>,
}

#[derive(Debug, Default)]
struct Trouble {
    told: Option<Instant>,
    /// Since then.
    lost: usize,
}

impl SpanExporter for Complaining {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        if let Err(error) = &result {
            let mut trouble = self.trouble.lock();
            trouble.lost += spans;
            if trouble.told.is_none_or(|told| told.elapsed() >= COMPLAIN_EVERY) {
                warn!(endpoint = self.endpoint, lost = trouble.lost, "cannot export spans: {error}");
                *trouble = Trouble { told: Some(Instant::now()), lost: 0 };
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
pub(super) struct Exported(Box<Span>);

impl Exported {
    /// `None` if nothing is exported.
    pub(super) fn begin(parent: Option<&Context>, remote: bool, build: impl FnOnce() -> SpanBuilder) -> Option<Self> {
        let tracer = TRACER.get()?;
        let parent =
            parent.map_or_else(Parent::new, |parent| Parent::new().with_remote_span_context(of(parent, remote)));
        Some(Self(Box::new(build().start_with_context(tracer, &parent))))
    }

    pub(super) fn context(&self) -> Context {
        let context = self.0.span_context();
        let state = context.trace_state().header();
        Context {
            trace: TraceId(u128::from_be_bytes(context.trace_id().to_bytes())),
            span: u64::from_be_bytes(context.span_id().to_bytes()),
            flags: context.trace_flags().to_u8(),
            state: (!state.is_empty()).then(|| state.into()),
        }
    }

    pub(super) fn set(&mut self, attribute: KeyValue) {
        self.0.set_attribute(attribute);
    }

    pub(super) fn rename(&mut self, name: &'static str) {
        self.0.update_name(name);
    }

    pub(super) fn failed(&mut self, why: &str) {
        let why = &why[..why.floor_char_boundary(MAX_DESCRIPTION)];
        self.0.set_status(Status::error(why.to_owned()));
    }
}

fn of(context: &Context, remote: bool) -> SpanContext {
    SpanContext::new(
        OtelTraceId::from(context.trace.0),
        SpanId::from(context.span),
        TraceFlags::new(context.flags),
        remote,
        context.state.as_deref().and_then(|state| state.parse().ok()).unwrap_or_default(),
    )
}
