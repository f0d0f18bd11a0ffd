//! A whole run: rounds against the pool and what it is compared with, taking turns, so that a noisy machine does harm to all alike.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    BenchError,
    baseline_server::BaselineServer,
    chaos::Chaos,
    drive::{Call, Extent, Load, Target},
    progress::Progress,
    raw::Raw,
    results::Results,
    subject::{Contestant, Course, Subject},
};
use crate::client::{Client, Endpoint};

/// What a run consists of.
#[derive(Debug)]
pub struct Session {
    pub endpoint: Endpoint,
    pub connections: usize,
    pub load: Load,
    pub extent: Extent,
    /// Of each subject.
    pub rounds: u32,
    pub warmup: Duration,
    pub compare: Option<Compare>,
    /// Kill a worker each time this has passed.
    pub chaos: Option<Duration>,
}

/// What it takes to compare the pool with the baseline.
#[derive(Debug)]
pub struct Compare {
    /// How many messages the load asks for.
    pub messages: u64,
    /// Our own binary, to be an echo worker.
    pub program: PathBuf,
    /// Where temporary files go.
    pub place: PathBuf,
}

impl Session {
    /// Runs all rounds, or as many as there is time for until `stop`.
    pub async fn run(&self, progress: &Arc<Progress>, stop: &CancellationToken) -> Result<Results, BenchError> {
        let mut field = vec![self.pool().await?];
        // Serves for as long as it is held.
        let mut _baseline = None;
        if let Some(compare) = &self.compare {
            let baseline = BaselineServer::start()?;
            field.extend(self.compared_with(compare, &baseline).await?);
            _baseline = Some(baseline);
        }
        if let Some(interval) = self.chaos {
            field.push(self.disturbed(interval).await?);
        }
        self.warm_up(&field, progress, stop).await?;
        let mut results = Results::default();
        for number in 1..=self.rounds {
            for subject in &field {
                if stop.is_cancelled() {
                    break;
                }
                progress.begin(subject.subject, number, self.extent);
                let outcome = subject.measure(self.extent, progress, stop).await?;
                results.add(subject.subject, outcome);
            }
        }
        results.interrupted = stop.is_cancelled();
        Ok(results)
    }

    async fn warm_up(
        &self,
        field: &[Contestant],
        progress: &Arc<Progress>,
        stop: &CancellationToken,
    ) -> Result<(), BenchError> {
        let extent = Extent::For(self.warmup);
        for subject in field.iter().filter(|subject| subject.subject != Subject::Chaos) {
            if self.warmup.is_zero() || stop.is_cancelled() {
                break;
            }
            progress.begin(subject.subject, 0, extent);
            subject.measure(extent, progress, stop).await?;
        }
        Ok(())
    }

    async fn pool(&self) -> Result<Contestant, BenchError> {
        let target = self.connect(&self.endpoint).await?;
        Ok(Contestant { subject: Subject::Pool, course: Course::Load(target, self.load.clone()) })
    }

    /// The baseline; and for one query at a time also the least that it could take.
    async fn compared_with(&self, compare: &Compare, baseline: &BaselineServer) -> Result<Vec<Contestant>, BenchError> {
        let target = self.connect(&baseline.endpoint).await?;
        let course = Course::Load(target.clone(), self.load.clone());
        let mut field = vec![Contestant { subject: Subject::Baseline, course }];
        if self.load.concurrency == 1 {
            let unary = Load { call: Call::Submit, ..self.load.clone() };
            field.push(Contestant { subject: Subject::Unary, course: Course::Load(target, unary) });
            let raw = Raw::start(&compare.program, &compare.place, &self.load.query.payload, compare.messages)?;
            field.push(Contestant { subject: Subject::Raw, course: Course::raw(raw) });
        }
        Ok(field)
    }

    async fn disturbed(&self, interval: Duration) -> Result<Contestant, BenchError> {
        let target = self.connect(&self.endpoint).await?;
        let client = Client::connect(&self.endpoint).await?;
        let chaos = Box::new(Chaos::prepare(client, self.load.query.kind.clone(), interval).await?);
        Ok(Contestant { subject: Subject::Chaos, course: Course::Chaos(target, self.load.clone(), chaos) })
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<Arc<Target>, BenchError> {
        Ok(Arc::new(Target::connect(endpoint, self.connections).await?))
    }
}
