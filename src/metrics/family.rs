//! Registers what the table defines, and finds single series in it.

use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts,
    Registry, core::Collector,
};

use super::{
    label::{Label, Values},
    table::{Definition, Id, Shape, TABLE},
};

/// From fifty microseconds to ten minutes: a cached answer and a long agent run both fall inside.
pub(super) const SECONDS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

/// Beside its buckets a histogram has one without a bound, a sum and a count.
pub(super) const PER_HISTOGRAM: usize = SECONDS.len() + 3;

/// Every metric of the table, registered, in its order.
#[derive(Debug)]
pub(super) struct Families(Vec<Family>);

#[derive(Debug)]
enum Family {
    Counter(IntCounterVec),
    FineCounter(CounterVec),
    Gauge(GaugeVec),
    Histogram(HistogramVec),
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        Self(TABLE.iter().map(|definition| Family::new(registry, definition)).collect())
    }

    pub(super) fn counter(&self, id: Id, values: &[&str]) -> IntCounter {
        match &self.0[id as usize] {
            Family::Counter(family) => family.with_label_values(values),
            other => panic!("{id:?} is no counter but {other:?}"),
        }
    }

    pub(super) fn fine_counter(&self, id: Id) -> Counter {
        match &self.0[id as usize] {
            Family::FineCounter(family) => family.with_label_values::<&str>(&[]),
            other => panic!("{id:?} is no counter of fractions but {other:?}"),
        }
    }

    pub(super) fn gauge(&self, id: Id, values: &[&str]) -> Gauge {
        match &self.0[id as usize] {
            Family::Gauge(family) => family.with_label_values(values),
            other => panic!("{id:?} is no gauge but {other:?}"),
        }
    }

    pub(super) fn histogram(&self, id: Id, values: &[&str]) -> Histogram {
        match &self.0[id as usize] {
            Family::Histogram(family) => family.with_label_values(values),
            other => panic!("{id:?} is no histogram but {other:?}"),
        }
    }

    /// Has all series stand at zero that a label with these values makes possible, with `None` those that have no such
    /// label. `types` are those of the kind, if it is one.
    pub(super) fn begin(&self, scope: Option<(Label, &[&str])>, types: &[&str]) {
        for (family, definition) in self.0.iter().zip(TABLE) {
            let concerned = match scope {
                Some((label, _)) => definition.is_of(label),
                None => !definition.is_of(Label::Kind) && !definition.is_of(Label::Method),
            };
            if concerned {
                let known = |label: Label| match scope {
                    Some((scope, values)) if scope == label => values,
                    _ => types,
                };
                for values in combinations(definition, known) {
                    family.begin(&values);
                }
            }
        }
    }
}

impl Family {
    fn new(registry: &Registry, definition: &Definition) -> Self {
        let labels: Vec<&str> = definition.labels.iter().flat_map(|label| label.names()).copied().collect();
        let Definition { name, help, shape, .. } = *definition;
        let options = Opts::new(name, help);
        match shape {
            Shape::Counter => Self::Counter(register(registry, IntCounterVec::new(options, &labels))),
            Shape::FineCounter => Self::FineCounter(register(registry, CounterVec::new(options, &labels))),
            Shape::Gauge => Self::Gauge(register(registry, GaugeVec::new(options, &labels))),
            Shape::Histogram => {
                let options = HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
                Self::Histogram(register(registry, HistogramVec::new(options, &labels)))
            }
        }
    }

    /// A series is there from when it is first asked for.
    fn begin(&self, values: &[&str]) {
        match self {
            Self::Counter(family) => drop(family.with_label_values(values)),
            Self::FineCounter(family) => drop(family.with_label_values(values)),
            Self::Gauge(family) => drop(family.with_label_values(values)),
            Self::Histogram(family) => drop(family.with_label_values(values)),
        }
    }
}

/// Every combination of the values that a metric's labels can have. `known` gives those that the table does not.
pub(super) fn combinations<'a>(definition: &Definition, known: impl Fn(Label) -> &'a [&'a str]) -> Vec<Vec<&'a str>> {
    definition.labels.iter().fold(vec![Vec::new()], |so_far, label| {
        let values: Vec<Vec<&str>> = match label.values() {
            Values::Fixed(values) => values,
            Values::Known(_) => known(*label).iter().map(|value| vec![*value]).collect(),
        };
        so_far.iter().flat_map(|start| values.iter().map(move |value| [&start[..], value].concat())).collect()
    })
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: prometheus::Result<C>) -> C {
    let collector = collector.expect("metric names and labels are valid");
    registry.register(Box::new(collector.clone())).expect("each metric is registered once");
    collector
}
