//! Checks once all is over: the pool at its size, one certificate for each dead worker, and nothing left.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    time::{Duration, Instant},
};

use remuda::api::proto::{DeathCause, DeathCertificate, WorkerState};

use crate::harness::{Client, DEADLINE, Server, group_of};

use super::table::{Misbehaviour, Row};

pub(super) struct Aftermath<'a> {
    pub server: &'a Server,
    pub rows: &'a [Row],
    /// Descriptors that the server held when all was well.
    pub descriptors_before: BTreeMap<String, u32>,
}

/// Number of open descriptors of a process, by sort.
pub(super) fn descriptors(pid: u32) -> BTreeMap<String, u32> {
    let mut sorts = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives").flatten() {
        // One that was closed since it was listed is not counted.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let target = target.display().to_string();
        let sort = target.split_once(":[").map_or(&*target, |(sort, _)| sort);
        *sorts.entry(sort.to_owned()).or_default() += 1;
    }
    sorts
}

impl Aftermath<'_> {
    /// Waits until the numbers of every kind are the expected ones.
    pub(super) async fn settled(&self) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let metrics = self.metrics();
            let open: Vec<String> = self.rows.iter().filter_map(|row| difference(row, &metrics)).collect();
            if open.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "these did not settle in {DEADLINE:?}:\n{}", open.join("\n"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn metrics(&self) -> HashMap<String, u32> {
        let (_, text) = self.server.get("/metrics");
        let series = text.lines().filter_map(|line| line.rsplit_once(' '));
        series.filter_map(|(series, value)| Some((series.to_owned(), value.parse::<f64>().ok()? as u32))).collect()
    }

    /// Nothing more has happened, and nothing is left.
    pub(super) async fn check(&self, client: &mut Client) {
        self.settled().await;
        self.check_certificates(client).await;
        let workers = client.workers().await;
        let mut live: Vec<u32> = workers.iter().map(|worker| worker.pid).collect();
        let mut running = self.server.worker_pids();
        live.sort_unstable();
        running.sort_unstable();
        assert_eq!(running, live, "the processes below the server are its workers");
        // A socket is there only until its worker has connected.
        let own: BTreeSet<String> = workers.iter().map(|worker| format!("w{}", worker.worker_id)).collect();
        assert_eq!(self.server.belongings(), own, "each live worker has its own directory, and nothing else is there");
        self.check_descriptors().await;
    }

    async fn check_descriptors(&self) {
        let deadline = Instant::now() + DEADLINE;
        // A worker that has closed its stdout lives on without that pipe.
        let closed = self.rows.iter().filter(|row| row.misbehaviour == Misbehaviour::ClosesStdout).count();
        let mut expected = self.descriptors_before.clone();
        *expected.entry("pipe".to_owned()).or_default() -= closed as u32;
        loop {
            let now = descriptors(self.server.pid());
            if now == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{now:?} are open where {expected:?} should be");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Each dead worker has one certificate, with the expected cause and exit.
    async fn check_certificates(&self, client: &mut Client) {
        let newest = client.workers().await.iter().map(|worker| worker.worker_id).max().expect("there are workers");
        let mut by_kind: HashMap<String, Vec<DeathCertificate>> = HashMap::new();
        for id in 1..=newest {
            let answer = client.worker(id).await;
            let worker = answer.worker.expect("an answer has a worker");
            let Some(certificate) = answer.certificate else { continue };
            assert_eq!(worker.state(), WorkerState::Dead, "{certificate:?}");
            let deaths = answer.history.iter().filter(|step| step.to() == WorkerState::Dead).count();
            assert_eq!(deaths, 1, "{:?}", answer.history);
            assert_eq!(group_of(certificate.pid), Vec::<u32>::new(), "left of {certificate:?}");
            by_kind.entry(worker.kind).or_default().push(certificate);
        }
        for row in self.rows {
            check_row(row, &by_kind.remove(row.kind()).unwrap_or_default());
        }
    }
}

#[track_caller]
fn check_row(row: &Row, certificates: &[DeathCertificate]) {
    let causes: Vec<DeathCause> = certificates.iter().map(DeathCertificate::cause).collect();
    assert_eq!(causes, row.deaths(), "{row:?}: {certificates:?}");
    if let (Some(_), Some(last)) = (row.cause(), certificates.last()) {
        assert_eq!((last.exit_code, last.signal.as_str()), row.misbehaviour.exit(), "{row:?}: {last:?}");
    }
}

/// The difference between the metrics of a row and the expected ones, if there is one.
fn difference(row: &Row, metrics: &HashMap<String, u32>) -> Option<String> {
    let kind = row.kind();
    let ready = metrics.get(&format!("remuda_workers{{kind=\"{kind}\",state=\"ready\"}}")).copied();
    let stale = metrics.get(&format!("remuda_stale_frames_total{{kind=\"{kind}\"}}")).copied();
    let exits = exits(kind, metrics);
    let mut expected: BTreeMap<String, u32> = BTreeMap::new();
    for cause in row.deaths() {
        *expected.entry(cause_name(cause)).or_default() += 1;
    }
    let is_settled = ready == Some(1) && stale == Some(row.stale_frames()) && exits == expected;
    (!is_settled).then(|| {
        format!("{row:?}: {ready:?} ready, {stale:?} stale frames, exits {exits:?} where {expected:?} are expected")
    })
}

/// A cause as metrics and the log have it.
pub(super) fn cause_name(cause: DeathCause) -> String {
    cause.as_str_name().trim_start_matches("DEATH_CAUSE_").to_lowercase()
}

/// Number of workers of a kind that ended, by cause.
fn exits(kind: &str, metrics: &HashMap<String, u32>) -> BTreeMap<String, u32> {
    let cause_of = |series: &str| {
        let labels = series.strip_prefix("remuda_worker_exits_total{cause=\"")?;
        labels.strip_suffix(&format!("\",kind=\"{kind}\"}}")).map(str::to_owned)
    };
    metrics
        .iter()
        .filter(|(_, count)| **count > 0)
        .filter_map(|(series, count)| Some((cause_of(series)?, *count)))
        .collect()
}
