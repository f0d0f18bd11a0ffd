//! The `PoolAdmin` service: looks at workers and queries.

use tonic::{Request, Response, Status};

use crate::{
    broker::{Page, QueryFilter},
    model::WorkerId,
    pool::Pool,
};

use super::{
    convert, errors,
    proto::{self, pool_admin_server::PoolAdmin},
    request,
};

#[derive(Debug)]
pub(super) struct PoolAdminService {
    pub pool: Pool,
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
        let query = self.pool.broker().get(&id).await.map_err(|error| errors::no_such_query(&error))?;
        Ok(Response::new(proto::GetQueryResponse { query: Some(convert::query(query)) }))
    }

    async fn list_queries(
        &self,
        request: Request<proto::ListQueriesRequest>,
    ) -> Result<Response<proto::ListQueriesResponse>, Status> {
        let request = request.into_inner();
        let (after, size) = request::page(request.page_size, &request.page_token)?;
        let filter = QueryFilter { states: request::states(&request.states)?, kind: self.kind(request.kind)? };
        let page = self.pool.broker().list(&filter, Page { after, size }).await;
        Ok(Response::new(proto::ListQueriesResponse {
            queries: page.queries.into_iter().map(convert::query).collect(),
            next_page_token: page.next.map(|next| next.to_string()).unwrap_or_default(),
        }))
    }
}
