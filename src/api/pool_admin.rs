//! The `PoolAdmin` service: looks at workers and queries, and does what operators ask for.

use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::{
    broker::{Page, QueryFilter},
    model::{QueryId, WorkerId},
    pool::{Pool, Selection},
};

use super::{
    convert, errors,
    pool_events::{Filter, PoolEvents},
    proto::{self, services::pool_admin_server::PoolAdmin},
    request,
};

#[derive(Debug)]
pub(super) struct PoolAdminService {
    pub pool: Pool,
    /// Cancelled when calls are to end.
    pub closing: CancellationToken,
}

impl PoolAdminService {
    /// Reads an optional kind; one that is not there is an error, not an empty list.
    fn kind(&self, kind: String) -> Result<Option<String>, Status> {
        let known = self.pool.kind_names();
        match kind.as_str() {
            "" => Ok(None),
            name if known.iter().any(|known| **known == *name) => Ok(Some(kind)),
            name => Err(errors::no_such_kind(name, &known)),
        }
    }

    /// Reads which dead letters are meant.
    fn selection(&self, ids: &[String], all: bool, kind: String) -> Result<Selection, Status> {
        let kind = self.kind(kind)?;
        request::selection(ids, all, kind)
    }
}

#[tonic::async_trait]
impl PoolAdmin for PoolAdminService {
    async fn get_worker(
        &self,
        request: Request<proto::GetWorkerRequest>,
    ) -> Result<Response<proto::GetWorkerResponse>, Status> {
        let id = WorkerId(request.into_inner().worker_id);
        let portrait = self.pool.worker(id).ok_or_else(|| errors::no_such_worker(id))?;
        Ok(Response::new(proto::GetWorkerResponse {
            worker: Some(convert::worker(portrait.worker)),
            history: portrait.history.iter().map(convert::transition).collect(),
            certificate: portrait.certificate.as_deref().map(convert::certificate),
            samples: portrait.samples.iter().map(convert::sample).collect(),
        }))
    }

    async fn list_workers(
        &self,
        request: Request<proto::ListWorkersRequest>,
    ) -> Result<Response<proto::ListWorkersResponse>, Status> {
        let request = request.into_inner();
        let (after, size) = request::page(request.page_size, &request.page_token)?;
        let kind = self.kind(request.kind)?;
        let mut workers = self.pool.workers(kind.as_deref());
        workers.retain(|worker| worker.id.0 > after);
        let more = workers.len() > size;
        workers.truncate(size);
        let next_page_token = match workers.last() {
            Some(last) if more => last.id.to_string(),
            _ => String::new(),
        };
        let workers = workers.into_iter().map(convert::worker).collect();
        Ok(Response::new(proto::ListWorkersResponse { workers, next_page_token }))
    }

    async fn get_query(
        &self,
        request: Request<proto::GetQueryRequest>,
    ) -> Result<Response<proto::GetQueryResponse>, Status> {
        let id = request::query_id(&request.into_inner().query_id)?;
        let query = self.pool.broker().get(&id).await.map_err(|error| errors::no_query(&error))?;
        Ok(Response::new(proto::GetQueryResponse { query: Some(convert::query(query)) }))
    }

    async fn list_queries(
        &self,
        request: Request<proto::ListQueriesRequest>,
    ) -> Result<Response<proto::ListQueriesResponse>, Status> {
        let request = request.into_inner();
        let (after, size) = request::page(request.page_size, &request.page_token)?;
        let filter = QueryFilter { states: request::states(&request.states)?, kind: self.kind(request.kind)? };
        let page = self
            .pool
            .broker()
            .list(&filter, Page { after, size })
            .await
            .map_err(|error| errors::unavailable(&error))?;
        Ok(Response::new(proto::ListQueriesResponse {
            queries: page.queries.into_iter().map(convert::query).collect(),
            next_page_token: page.next.map(|next| next.to_string()).unwrap_or_default(),
        }))
    }

    async fn list_dead_letters(
        &self,
        request: Request<proto::ListDeadLettersRequest>,
    ) -> Result<Response<proto::ListDeadLettersResponse>, Status> {
        let request = request.into_inner();
        let (after, size) = request::page(request.page_size, &request.page_token)?;
        let kind = self.kind(request.kind)?;
        let page = self.pool.broker().dead_letters(kind.as_deref(), Page { after, size }).await;
        let page = page.map_err(|error| errors::unavailable(&error))?;
        Ok(Response::new(proto::ListDeadLettersResponse {
            letters: page.letters.into_iter().map(convert::dead_letter).collect(),
            next_page_token: page.next.map(|next| next.to_string()).unwrap_or_default(),
        }))
    }

    async fn get_dead_letter(
        &self,
        request: Request<proto::GetDeadLetterRequest>,
    ) -> Result<Response<proto::GetDeadLetterResponse>, Status> {
        let id = request::query_id(&request.into_inner().query_id)?;
        let letter = self.pool.broker().dead_letter(&id).await.map_err(errors::no_dead_letter)?;
        Ok(Response::new(proto::GetDeadLetterResponse { letter: Some(convert::dead_letter(letter)) }))
    }

    async fn requeue_dead_letters(
        &self,
        request: Request<proto::RequeueDeadLettersRequest>,
    ) -> Result<Response<proto::RequeueDeadLettersResponse>, Status> {
        let request = request.into_inner();
        let selection = self.selection(&request.query_ids, request.all, request.kind)?;
        let requeued = self.pool.requeue(selection).await.map_err(errors::not_requeued)?;
        let respond = |(id, new_id): (QueryId, QueryId)| proto::Requeued {
            query_id: id.to_string(),
            new_query_id: new_id.to_string(),
        };
        let requeued = requeued.into_iter().map(respond).collect();
        Ok(Response::new(proto::RequeueDeadLettersResponse { requeued }))
    }

    async fn purge_dead_letters(
        &self,
        request: Request<proto::PurgeDeadLettersRequest>,
    ) -> Result<Response<proto::PurgeDeadLettersResponse>, Status> {
        let request = request.into_inner();
        let selection = self.selection(&request.query_ids, request.all, request.kind)?;
        let purged = self.pool.purge(selection).await.map_err(errors::no_dead_letter)?;
        Ok(Response::new(proto::PurgeDeadLettersResponse { purged: u32::try_from(purged).unwrap_or(u32::MAX) }))
    }

    async fn scale_kind(
        &self,
        request: Request<proto::ScaleKindRequest>,
    ) -> Result<Response<proto::ScaleKindResponse>, Status> {
        let request = request.into_inner();
        let to = request::scale(&request)?;
        let scaled = self.pool.scale(&request.kind, to).map_err(errors::not_granted)?;
        Ok(Response::new(convert::scaled(&scaled)))
    }

    async fn restart_worker(
        &self,
        request: Request<proto::RestartWorkerRequest>,
    ) -> Result<Response<proto::RestartWorkerResponse>, Status> {
        self.pool.restart_worker(WorkerId(request.into_inner().worker_id)).map_err(errors::not_granted)?;
        Ok(Response::new(proto::RestartWorkerResponse {}))
    }

    async fn evict_worker(
        &self,
        request: Request<proto::EvictWorkerRequest>,
    ) -> Result<Response<proto::EvictWorkerResponse>, Status> {
        self.pool.evict_worker(WorkerId(request.into_inner().worker_id)).map_err(errors::not_granted)?;
        Ok(Response::new(proto::EvictWorkerResponse {}))
    }

    async fn drain_worker(
        &self,
        request: Request<proto::DrainWorkerRequest>,
    ) -> Result<Response<proto::DrainWorkerResponse>, Status> {
        self.pool.drain_worker(WorkerId(request.into_inner().worker_id)).map_err(errors::not_granted)?;
        Ok(Response::new(proto::DrainWorkerResponse {}))
    }

    async fn resume_worker(
        &self,
        request: Request<proto::ResumeWorkerRequest>,
    ) -> Result<Response<proto::ResumeWorkerResponse>, Status> {
        self.pool.resume_worker(WorkerId(request.into_inner().worker_id)).map_err(errors::not_granted)?;
        Ok(Response::new(proto::ResumeWorkerResponse {}))
    }

    async fn drain_pool(
        &self,
        request: Request<proto::DrainPoolRequest>,
    ) -> Result<Response<proto::DrainPoolResponse>, Status> {
        let reason = request.into_inner().reason;
        request::reason(&reason)?;
        self.pool.drain(&reason).map_err(errors::not_granted)?;
        Ok(Response::new(proto::DrainPoolResponse {}))
    }

    async fn resume_pool(
        &self,
        _request: Request<proto::ResumePoolRequest>,
    ) -> Result<Response<proto::ResumePoolResponse>, Status> {
        self.pool.resume().map_err(errors::not_granted)?;
        Ok(Response::new(proto::ResumePoolResponse {}))
    }

    async fn reload(&self, request: Request<proto::ReloadRequest>) -> Result<Response<proto::ReloadResponse>, Status> {
        let found = self.pool.reload(request.into_inner().dry_run).await.map_err(errors::not_granted)?;
        Ok(Response::new(convert::reload(found)))
    }

    type WatchEventsStream = PoolEvents;

    async fn watch_events(&self, request: Request<proto::WatchEventsRequest>) -> Result<Response<PoolEvents>, Status> {
        let filter = Filter::read(request.into_inner())?;
        filter.kinds().iter().try_for_each(|kind| self.kind(kind.clone()).map(drop))?;
        Ok(Response::new(PoolEvents::new(self.pool.watch(), filter, self.closing.clone())))
    }
}
