//! A whole run: rounds on the pool and on the subjects that it is compared with, in turns, so that other load on the machine
//! affects all of them alike.

use std::{path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    BenchError,
    baseline_server::BaselineServer,
    chaos::Chaos,
    drive::{LoadCall, LoadSpec, LoadTarget, RoundLength},
    progress::Progress,
    raw::RawRoundTrip,
    results::RunResults,
    subject::{Subject, Workload},
};
use crate::client::{Client, Endpoint};

/// The settings of a run.
#[derive(Debug)]
pub struct BenchRun {
    pub endpoint: Endpoint,
    pub connections: usize,
    pub load: LoadSpec,
    pub length: RoundLength,
    /// Rounds of each subject.
    pub rounds: u32,
    pub warmup: Duration,
    pub compare: Option<CompareOptions>,
    /// Interval at which a worker is killed.
    pub chaos: Option<Duration>,
}

/// The settings of a comparison with the baseline.
#[derive(Debug)]
pub struct CompareOptions {
    /// Messages that each query asks for.
    pub messages: u64,
    /// This binary, to be run as an echo worker.
    pub program: PathBuf,
    pub temp_dir: PathBuf,
}

impl BenchRun {
    /// Runs all rounds, or fewer if `stop` is cancelled meanwhile.
    pub async fn run(&self, progress: &Arc<Progress>, stop: &CancellationToken) -> Result<RunResults, BenchError> {
        let target = self.connect(&self.endpoint).await?;
        let mut subjects = vec![(Subject::Pool, Workload::Load(target, self.load.clone()))];
        // Serves until it is dropped.
        let mut _baseline = None;
        if let Some(compare) = &self.compare {
            let baseline = BaselineServer::start()?;
            self.add_compared(&mut subjects, compare, &baseline).await?;
            _baseline = Some(baseline);
        }
        if let Some(interval) = self.chaos {
            let target = self.connect(&self.endpoint).await?;
            let client = Client::connect(&self.endpoint).await?;
            let chaos = Box::new(Chaos::prepare(client, self.load.query.kind.clone(), interval).await?);
            subjects.push((Subject::Chaos, Workload::Chaos(target, self.load.clone(), chaos)));
        }
        self.warm_up(&subjects, progress, stop).await?;
        let mut results = RunResults::default();
        for number in 1..=self.rounds {
            for (subject, workload) in &subjects {
                if stop.is_cancelled() {
                    break;
                }
                progress.begin(*subject, number, self.length);
                results.add(*subject, workload.run(self.length, progress, stop).await?);
            }
        }
        results.interrupted = stop.is_cancelled();
        Ok(results)
    }

    async fn warm_up(
        &self,
        subjects: &[(Subject, Workload)],
        progress: &Arc<Progress>,
        stop: &CancellationToken,
    ) -> Result<(), BenchError> {
        let length = RoundLength::Duration(self.warmup);
        for (subject, workload) in subjects.iter().filter(|(subject, _)| *subject != Subject::Chaos) {
            if self.warmup.is_zero() || stop.is_cancelled() {
                break;
            }
            progress.begin(*subject, 0, length);
            workload.run(length, progress, stop).await?;
        }
        Ok(())
    }

    /// Adds the baseline; and for one query at a time also its parts, a unary call and a round trip to a worker.
    async fn add_compared(
        &self,
        subjects: &mut Vec<(Subject, Workload)>,
        compare: &CompareOptions,
        baseline: &BaselineServer,
    ) -> Result<(), BenchError> {
        let target = self.connect(&baseline.endpoint).await?;
        subjects.push((Subject::Baseline, Workload::Load(target.clone(), self.load.clone())));
        if self.load.concurrency == 1 {
            let unary = LoadSpec { call: LoadCall::Submit, ..self.load.clone() };
            subjects.push((Subject::Unary, Workload::Load(target, unary)));
            let payload = &self.load.query.payload;
            let raw = RawRoundTrip::start(&compare.program, &compare.temp_dir, payload, compare.messages)?;
            subjects.push((Subject::Raw, Workload::Raw(Arc::new(Mutex::new(raw)))));
        }
        Ok(())
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<Arc<LoadTarget>, BenchError> {
        Ok(Arc::new(LoadTarget::connect(endpoint, self.connections).await?))
    }
}
