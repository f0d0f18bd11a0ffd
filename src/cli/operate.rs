//! `remuda scale`, `restart`, `evict`, `drain` and `resume`: actions on the pool and its workers.

use super::{
    args::{DrainArgs, ResumeArgs, ScaleArgs, WorkerActionArgs},
    exit::{CliError, CliExit},
    format, json,
    output::{self, printable},
};
use crate::{
    api::proto::{
        DrainPoolRequest, DrainWorkerRequest, EvictWorkerRequest, RestartWorkerRequest, ResumePoolRequest,
        ResumeWorkerRequest, ScaleKindRequest, ScaleKindResponse,
    },
    client::{Client, Endpoint},
};

pub(super) async fn scale(server: &Endpoint, args: ScaleArgs) -> Result<CliExit, CliError> {
    let client = Client::connect(server).await?;
    let request = ScaleKindRequest { kind: args.kind, target: Some(args.target) };
    let response = client.call(client.admin().scale_kind(request)).await?;
    output::answer(args.json, || json::scaled(&response), || format!("{}\n", printable(&describe_scaled(&response))))
}

pub(super) fn describe_scaled(response: &ScaleKindResponse) -> String {
    let ScaleKindResponse { kind, from, to } = response;
    let workers = format::plural(u64::from(*to), "worker", "workers");
    if from == to {
        return format!("kind {kind} is to have {workers}, as before");
    }
    format!("kind {kind} is to have {workers} now; it was {from}")
}

pub(super) async fn restart(server: &Endpoint, args: WorkerActionArgs) -> Result<CliExit, CliError> {
    let client = Client::connect(server).await?;
    let worker_id = args.worker;
    client.call(client.admin().restart_worker(RestartWorkerRequest { worker_id })).await?;
    let text = format!("worker {worker_id} will be replaced; its query, if any, ends first");
    done(args.json, "restart", Some(worker_id), &text)
}

pub(super) async fn evict(server: &Endpoint, args: WorkerActionArgs) -> Result<CliExit, CliError> {
    let client = Client::connect(server).await?;
    let worker_id = args.worker;
    client.call(client.admin().evict_worker(EvictWorkerRequest { worker_id })).await?;
    done(args.json, "evict", Some(worker_id), &format!("worker {worker_id} is being stopped"))
}

pub(super) async fn drain(server: &Endpoint, args: DrainArgs) -> Result<CliExit, CliError> {
    let client = Client::connect(server).await?;
    let text = if let Some(worker_id) = args.worker {
        client.call(client.admin().drain_worker(DrainWorkerRequest { worker_id })).await?;
        format!("worker {worker_id} gets no more queries; undo it with: remuda resume {worker_id}")
    } else {
        let request = DrainPoolRequest { reason: args.reason.unwrap_or_default() };
        client.call(client.admin().drain_pool(request)).await?;
        "the pool takes no new queries; accepted queries still run; undo it with: remuda resume".to_owned()
    };
    done(args.json, "drain", args.worker, &text)
}

pub(super) async fn resume(server: &Endpoint, args: ResumeArgs) -> Result<CliExit, CliError> {
    let client = Client::connect(server).await?;
    let text = if let Some(worker_id) = args.worker {
        client.call(client.admin().resume_worker(ResumeWorkerRequest { worker_id })).await?;
        format!("worker {worker_id} gets queries")
    } else {
        client.call(client.admin().resume_pool(ResumePoolRequest {})).await?;
        "the pool takes queries".to_owned()
    };
    done(args.json, "resume", args.worker, &text)
}

/// Reports an action on a worker, or on the whole pool.
fn done(as_json: bool, action: &str, worker_id: Option<u64>, text: &str) -> Result<CliExit, CliError> {
    output::answer(as_json, || json::done(action, worker_id), || format!("{text}\n"))
}
