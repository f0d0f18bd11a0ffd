//! `remuda scale`, `restart`, `evict`, `drain` and `resume`: what operators do to the pool and its workers.

use super::{
    args::{DrainArgs, EvictArgs, RestartArgs, ResumeArgs, ScaleArgs, ScaleTo},
    exit::{Exit, Failure},
    json, output, words,
};
use crate::{
    api::proto::{
        DrainPoolRequest, DrainWorkerRequest, EvictWorkerRequest, RestartWorkerRequest, ResumePoolRequest,
        ResumeWorkerRequest, ScaleKindRequest, ScaleKindResponse, scale_kind_request::Target,
    },
    client::{Client, Endpoint},
};

pub(super) async fn scale(server: &Endpoint, args: ScaleArgs) -> Result<Exit, Failure> {
    let client = Client::connect(server).await?;
    let target = match args.to {
        ScaleTo::Workers(count) => Target::Workers(count),
        ScaleTo::By(count) => Target::By(count),
    };
    let scaled = client.scale_kind(ScaleKindRequest { kind: args.kind, target: Some(target) }).await?;
    if args.json {
        output::line(&json::line(&json::Scaled::from(&scaled)))?;
        return Ok(Exit::Done);
    }
    say(&scaled_to(&scaled))
}

pub(super) fn scaled_to(scaled: &ScaleKindResponse) -> String {
    let ScaleKindResponse { kind, from, to } = scaled;
    let workers = words::count(u64::from(*to), "worker", "workers");
    if from == to {
        return format!("kind {kind} is to have {workers}, as before");
    }
    format!("kind {kind} is to have {workers} now; it was {from}")
}

pub(super) async fn restart(server: &Endpoint, args: RestartArgs) -> Result<Exit, Failure> {
    let worker_id = args.worker;
    Client::connect(server).await?.restart_worker(RestartWorkerRequest { worker_id }).await?;
    let words = format!("worker {worker_id} will be replaced; its query, if any, ends first");
    done(args.json, "restart", Some(worker_id), &words)
}

pub(super) async fn evict(server: &Endpoint, args: EvictArgs) -> Result<Exit, Failure> {
    let worker_id = args.worker;
    Client::connect(server).await?.evict_worker(EvictWorkerRequest { worker_id }).await?;
    done(args.json, "evict", Some(worker_id), &format!("worker {worker_id} is being stopped"))
}

pub(super) async fn drain(server: &Endpoint, args: DrainArgs) -> Result<Exit, Failure> {
    let client = Client::connect(server).await?;
    let Some(worker_id) = args.worker else {
        client.drain_pool(DrainPoolRequest { reason: args.reason.unwrap_or_default() }).await?;
        let words = "the pool takes no new queries, and those that were accepted run; undo it with: remuda resume";
        return done(args.json, "drain", None, words);
    };
    client.drain_worker(DrainWorkerRequest { worker_id }).await?;
    let words = format!("worker {worker_id} gets no more queries; undo it with: remuda resume {worker_id}");
    done(args.json, "drain", Some(worker_id), &words)
}

pub(super) async fn resume(server: &Endpoint, args: ResumeArgs) -> Result<Exit, Failure> {
    let client = Client::connect(server).await?;
    let Some(worker_id) = args.worker else {
        client.resume_pool(ResumePoolRequest {}).await?;
        return done(args.json, "resume", None, "the pool takes queries");
    };
    client.resume_worker(ResumeWorkerRequest { worker_id }).await?;
    done(args.json, "resume", Some(worker_id), &format!("worker {worker_id} gets queries"))
}

/// Says that it was done: to a worker, or to the whole pool.
fn done(as_json: bool, done: &'static str, worker_id: Option<u64>, words: &str) -> Result<Exit, Failure> {
    if !as_json {
        return say(words);
    }
    output::line(&json::line(&json::Done { done, worker_id }))?;
    Ok(Exit::Done)
}

fn say(sentence: &str) -> Result<Exit, Failure> {
    output::text(&format!("{}\n", output::printable(sentence)))?;
    Ok(Exit::Done)
}
