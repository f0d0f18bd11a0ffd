//! Registers the metrics of the table and finds single series.

use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts,
    Registry, core::Collector,
};

use super::{
    label::{LabelValues, MetricLabel},
    table::{METRICS, MetricDefinition, MetricId, MetricType},
};

/// From fifty microseconds to ten minutes: a cached answer and a long agent run both fall inside.
pub(super) const BUCKETS_SECONDS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

/// Beside its buckets a histogram has one without a bound, a sum and a count.
pub(super) const SERIES_PER_HISTOGRAM: usize = BUCKETS_SECONDS.len() + 3;

/// Every metric of the table, registered, in its order.
#[derive(Debug)]
pub(super) struct MetricFamilies(Vec<MetricFamily>);

#[derive(Debug)]
enum MetricFamily {
    Counter(IntCounterVec),
    FloatCounter(CounterVec),
    Gauge(GaugeVec),
    Histogram(HistogramVec),
}

impl MetricFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        Self(METRICS.iter().map(|definition| MetricFamily::new(registry, definition)).collect())
    }

    pub(super) fn counter(&self, id: MetricId, labels: &[&str]) -> IntCounter {
        match &self.0[id as usize] {
            MetricFamily::Counter(family) => family.with_label_values(labels),
            other => panic!("{id:?} is not a counter but {other:?}"),
        }
    }

    pub(super) fn float_counter(&self, id: MetricId) -> Counter {
        match &self.0[id as usize] {
            MetricFamily::FloatCounter(family) => family.with_label_values::<&str>(&[]),
            other => panic!("{id:?} is not a counter of fractions but {other:?}"),
        }
    }

    pub(super) fn gauge(&self, id: MetricId, labels: &[&str]) -> Gauge {
        match &self.0[id as usize] {
            MetricFamily::Gauge(family) => family.with_label_values(labels),
            other => panic!("{id:?} is not a gauge but {other:?}"),
        }
    }

    pub(super) fn histogram(&self, id: MetricId, labels: &[&str]) -> Histogram {
        match &self.0[id as usize] {
            MetricFamily::Histogram(family) => family.with_label_values(labels),
            other => panic!("{id:?} is not a histogram but {other:?}"),
        }
    }

    /// Creates, at zero, all series that a label with these values makes possible; with `None`, those that have neither a kind
    /// nor a method. `types` are the values of the label `type`.
    pub(super) fn create_series(&self, scope: Option<(MetricLabel, &[&str])>, types: &[&str]) {
        for (family, definition) in self.0.iter().zip(METRICS) {
            let is_in_scope = match scope {
                Some((label, _)) => definition.has(label),
                None => !definition.has(MetricLabel::Kind) && !definition.has(MetricLabel::Method),
            };
            if is_in_scope {
                let configured = |label: MetricLabel| match scope {
                    Some((scope, values)) if scope == label => values,
                    _ => types,
                };
                for labels in label_combinations(definition, configured) {
                    family.create_series(&labels);
                }
            }
        }
    }
}

impl MetricFamily {
    fn new(registry: &Registry, definition: &MetricDefinition) -> Self {
        let labels: Vec<&str> = definition.labels.iter().flat_map(|label| label.names()).copied().collect();
        let MetricDefinition { name, help, metric_type, .. } = *definition;
        let options = Opts::new(name, help);
        match metric_type {
            MetricType::Counter => Self::Counter(register(registry, IntCounterVec::new(options, &labels))),
            MetricType::FloatCounter => Self::FloatCounter(register(registry, CounterVec::new(options, &labels))),
            MetricType::Gauge => Self::Gauge(register(registry, GaugeVec::new(options, &labels))),
            MetricType::Histogram => {
                let options = HistogramOpts::new(name, help).buckets(BUCKETS_SECONDS.to_vec());
                Self::Histogram(register(registry, HistogramVec::new(options, &labels)))
            }
        }
    }

    /// A series exists once it has been looked up.
    fn create_series(&self, labels: &[&str]) {
        match self {
            Self::Counter(family) => drop(family.with_label_values(labels)),
            Self::FloatCounter(family) => drop(family.with_label_values(labels)),
            Self::Gauge(family) => drop(family.with_label_values(labels)),
            Self::Histogram(family) => drop(family.with_label_values(labels)),
        }
    }
}

/// Every combination of the values of a metric's labels. `configured` gives those that the code does not fix.
pub(super) fn label_combinations<'a>(
    definition: &MetricDefinition,
    configured: impl Fn(MetricLabel) -> &'a [&'a str],
) -> Vec<Vec<&'a str>> {
    definition.labels.iter().fold(vec![Vec::new()], |combinations, label| {
        let values: Vec<Vec<&str>> = match label.values() {
            LabelValues::Fixed(values) => values,
            LabelValues::Configured(_) => configured(*label).iter().map(|value| vec![*value]).collect(),
        };
        combinations.iter().flat_map(|start| values.iter().map(move |value| [&start[..], value].concat())).collect()
    })
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: prometheus::Result<C>) -> C {
    let collector = collector.expect("metric names and labels are valid");
    registry.register(Box::new(collector.clone())).expect("each metric is registered once");
    collector
}
