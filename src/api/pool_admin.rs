//! The `PoolAdmin` service: inspects workers and queries, and carries out the requests of operators.

use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::{
    broker::{Page, QueryFilter},
    model::{QueryId, WorkerId},
    pool::{AdminError, DeadLetterSelection, Pool},
};

use super::{
    Reply, convert, errors,
    pool_events::{PoolEventFilter, PoolEventResponses, pool_event_stream},
    proto::{
        self, DrainPoolRequest, DrainPoolResponse, DrainWorkerRequest, DrainWorkerResponse, EvictWorkerRequest,
        EvictWorkerResponse, GetDeadLetterRequest, GetDeadLetterResponse, GetQueryRequest, GetQueryResponse,
        GetWorkerRequest, GetWorkerResponse, ListDeadLettersRequest, ListDeadLettersResponse, ListQueriesRequest,
        ListQueriesResponse, ListWorkersRequest, ListWorkersResponse, PurgeDeadLettersRequest,
        PurgeDeadLettersResponse, ReloadRequest, ReloadResponse, RequeueDeadLettersRequest, RequeueDeadLettersResponse,
        RestartWorkerRequest, RestartWorkerResponse, ResumePoolRequest, ResumePoolResponse, ResumeWorkerRequest,
        ResumeWorkerResponse, ScaleKindRequest, ScaleKindResponse, WatchEventsRequest,
        services::pool_admin_server::PoolAdmin,
    },
    request,
};

#[derive(Debug)]
pub(super) struct PoolAdminService {
    pub pool: Pool,
    /// Cancelled when endless streams must end.
    pub closing: CancellationToken,
}

impl PoolAdminService {
    /// Reads an optional kind. An unknown one is an error, not an empty list.
    fn kind(&self, kind: String) -> Result<Option<String>, AdminError> {
        let known = self.pool.kind_names();
        if kind.is_empty() {
            Ok(None)
        } else if known.iter().any(|known| **known == *kind) {
            Ok(Some(kind))
        } else {
            Err(AdminError::NoSuchKind { kind, known: known.join(", ") })
        }
    }

    fn selection(&self, ids: &[String], all: bool, kind: String) -> Result<DeadLetterSelection, Status> {
        request::selection(ids, all, self.kind(kind)?)
    }
}

#[tonic::async_trait]
impl PoolAdmin for PoolAdminService {
    async fn get_worker(&self, request: Request<GetWorkerRequest>) -> Reply<GetWorkerResponse> {
        let id = WorkerId(request.into_inner().worker_id);
        let details = self.pool.worker(id).ok_or_else(|| errors::no_such_worker(id))?;
        Ok(Response::new(GetWorkerResponse {
            worker: Some(convert::worker(details.worker)),
            history: details.history.iter().map(convert::transition).collect(),
            certificate: details.certificate.as_deref().map(convert::certificate),
            samples: details.samples.iter().map(convert::sample).collect(),
        }))
    }

    async fn list_workers(&self, request: Request<ListWorkersRequest>) -> Reply<ListWorkersResponse> {
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
        Ok(Response::new(ListWorkersResponse { workers, next_page_token }))
    }

    async fn get_query(&self, request: Request<GetQueryRequest>) -> Reply<GetQueryResponse> {
        let id = request::query_id(&request.into_inner().query_id)?;
        let query = self.pool.broker().get(&id).await?;
        Ok(Response::new(GetQueryResponse { query: Some(convert::query(query)) }))
    }

    async fn list_queries(&self, request: Request<ListQueriesRequest>) -> Reply<ListQueriesResponse> {
        let request = request.into_inner();
        let (after, size) = request::page(request.page_size, &request.page_token)?;
        let filter = QueryFilter { states: request::states(&request.states)?, kind: self.kind(request.kind)? };
        let page = self.pool.broker().list(&filter, Page { after, size }).await?;
        Ok(Response::new(ListQueriesResponse {
            queries: page.queries.into_iter().map(convert::query).collect(),
            next_page_token: page.next.map(|next| next.to_string()).unwrap_or_default(),
        }))
    }

    async fn list_dead_letters(&self, request: Request<ListDeadLettersRequest>) -> Reply<ListDeadLettersResponse> {
        let request = request.into_inner();
        let (after, size) = request::page(request.page_size, &request.page_token)?;
        let kind = self.kind(request.kind)?;
        let page = self.pool.broker().dead_letters(kind.as_deref(), Page { after, size }).await?;
        Ok(Response::new(ListDeadLettersResponse {
            letters: page.letters.into_iter().map(convert::dead_letter).collect(),
            next_page_token: page.next.map(|next| next.to_string()).unwrap_or_default(),
        }))
    }

    async fn get_dead_letter(&self, request: Request<GetDeadLetterRequest>) -> Reply<GetDeadLetterResponse> {
        let id = request::query_id(&request.into_inner().query_id)?;
        let letter = self.pool.broker().dead_letter(&id).await?;
        Ok(Response::new(GetDeadLetterResponse { letter: Some(convert::dead_letter(letter)) }))
    }

    async fn requeue_dead_letters(
        &self,
        request: Request<RequeueDeadLettersRequest>,
    ) -> Reply<RequeueDeadLettersResponse> {
        let request = request.into_inner();
        let selection = self.selection(&request.query_ids, request.all, request.kind)?;
        let requeued = self.pool.operations().requeue(selection).await?;
        let convert = |(id, new_id): (QueryId, QueryId)| proto::Requeued {
            query_id: id.to_string(),
            new_query_id: new_id.to_string(),
        };
        let requeued = requeued.into_iter().map(convert).collect();
        Ok(Response::new(RequeueDeadLettersResponse { requeued }))
    }

    async fn purge_dead_letters(&self, request: Request<PurgeDeadLettersRequest>) -> Reply<PurgeDeadLettersResponse> {
        let request = request.into_inner();
        let selection = self.selection(&request.query_ids, request.all, request.kind)?;
        let purged = self.pool.operations().purge(selection).await?;
        Ok(Response::new(PurgeDeadLettersResponse { purged: convert::saturated(purged) }))
    }

    async fn scale_kind(&self, request: Request<ScaleKindRequest>) -> Reply<ScaleKindResponse> {
        let request = request.into_inner();
        let to = request::scale(&request)?;
        let scaled = self.pool.operations().scale(&request.kind, to)?;
        Ok(Response::new(convert::scaled(&scaled)))
    }

    async fn restart_worker(&self, request: Request<RestartWorkerRequest>) -> Reply<RestartWorkerResponse> {
        self.pool.operations().restart_worker(WorkerId(request.into_inner().worker_id))?;
        Ok(Response::new(RestartWorkerResponse {}))
    }

    async fn evict_worker(&self, request: Request<EvictWorkerRequest>) -> Reply<EvictWorkerResponse> {
        self.pool.operations().evict_worker(WorkerId(request.into_inner().worker_id))?;
        Ok(Response::new(EvictWorkerResponse {}))
    }

    async fn drain_worker(&self, request: Request<DrainWorkerRequest>) -> Reply<DrainWorkerResponse> {
        self.pool.operations().drain_worker(WorkerId(request.into_inner().worker_id))?;
        Ok(Response::new(DrainWorkerResponse {}))
    }

    async fn resume_worker(&self, request: Request<ResumeWorkerRequest>) -> Reply<ResumeWorkerResponse> {
        self.pool.operations().resume_worker(WorkerId(request.into_inner().worker_id))?;
        Ok(Response::new(ResumeWorkerResponse {}))
    }

    async fn drain_pool(&self, request: Request<DrainPoolRequest>) -> Reply<DrainPoolResponse> {
        let reason = request.into_inner().reason;
        request::reason(&reason)?;
        self.pool.operations().drain(&reason)?;
        Ok(Response::new(DrainPoolResponse {}))
    }

    async fn resume_pool(&self, _request: Request<ResumePoolRequest>) -> Reply<ResumePoolResponse> {
        self.pool.operations().resume()?;
        Ok(Response::new(ResumePoolResponse {}))
    }

    async fn reload(&self, request: Request<ReloadRequest>) -> Reply<ReloadResponse> {
        let found = self.pool.operations().reload(request.into_inner().dry_run).await?;
        Ok(Response::new(convert::reload(found)))
    }

    type WatchEventsStream = PoolEventResponses;

    async fn watch_events(&self, request: Request<WatchEventsRequest>) -> Reply<PoolEventResponses> {
        let filter = PoolEventFilter::read(request.into_inner())?;
        filter.kinds().iter().try_for_each(|kind| self.kind(kind.clone()).map(drop))?;
        Ok(Response::new(pool_event_stream(self.pool.subscribe(), filter, self.closing.clone())))
    }
}
