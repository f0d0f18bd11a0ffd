//! The calls of operators: looking at the pool, changing it, watching it.

use tonic::Streaming;

use super::{Client, ClientError, Endpoint, failed};
use crate::api::proto;

/// What happens in the pool, until the server stops.
#[derive(Debug)]
pub struct PoolEventStream {
    endpoint: Endpoint,
    stream: Streaming<proto::WatchEventsResponse>,
}

impl Client {
    pub async fn get_worker(&self, request: proto::GetWorkerRequest) -> Result<proto::GetWorkerResponse, ClientError> {
        self.answer(self.admin().get_worker(request)).await
    }

    pub async fn list_workers(
        &self,
        request: proto::ListWorkersRequest,
    ) -> Result<proto::ListWorkersResponse, ClientError> {
        self.answer(self.admin().list_workers(request)).await
    }

    pub async fn get_query(&self, request: proto::GetQueryRequest) -> Result<proto::GetQueryResponse, ClientError> {
        self.answer(self.admin().get_query(request)).await
    }

    pub async fn list_queries(
        &self,
        request: proto::ListQueriesRequest,
    ) -> Result<proto::ListQueriesResponse, ClientError> {
        self.answer(self.admin().list_queries(request)).await
    }

    pub async fn list_dead_letters(
        &self,
        request: proto::ListDeadLettersRequest,
    ) -> Result<proto::ListDeadLettersResponse, ClientError> {
        self.answer(self.admin().list_dead_letters(request)).await
    }

    pub async fn get_dead_letter(
        &self,
        request: proto::GetDeadLetterRequest,
    ) -> Result<proto::GetDeadLetterResponse, ClientError> {
        self.answer(self.admin().get_dead_letter(request)).await
    }

    pub async fn requeue_dead_letters(
        &self,
        request: proto::RequeueDeadLettersRequest,
    ) -> Result<proto::RequeueDeadLettersResponse, ClientError> {
        self.answer(self.admin().requeue_dead_letters(request)).await
    }

    pub async fn purge_dead_letters(
        &self,
        request: proto::PurgeDeadLettersRequest,
    ) -> Result<proto::PurgeDeadLettersResponse, ClientError> {
        self.answer(self.admin().purge_dead_letters(request)).await
    }

    pub async fn scale_kind(&self, request: proto::ScaleKindRequest) -> Result<proto::ScaleKindResponse, ClientError> {
        self.answer(self.admin().scale_kind(request)).await
    }

    pub async fn restart_worker(
        &self,
        request: proto::RestartWorkerRequest,
    ) -> Result<proto::RestartWorkerResponse, ClientError> {
        self.answer(self.admin().restart_worker(request)).await
    }

    pub async fn evict_worker(
        &self,
        request: proto::EvictWorkerRequest,
    ) -> Result<proto::EvictWorkerResponse, ClientError> {
        self.answer(self.admin().evict_worker(request)).await
    }

    pub async fn drain_worker(
        &self,
        request: proto::DrainWorkerRequest,
    ) -> Result<proto::DrainWorkerResponse, ClientError> {
        self.answer(self.admin().drain_worker(request)).await
    }

    pub async fn resume_worker(
        &self,
        request: proto::ResumeWorkerRequest,
    ) -> Result<proto::ResumeWorkerResponse, ClientError> {
        self.answer(self.admin().resume_worker(request)).await
    }

    pub async fn drain_pool(&self, request: proto::DrainPoolRequest) -> Result<proto::DrainPoolResponse, ClientError> {
        self.answer(self.admin().drain_pool(request)).await
    }

    pub async fn resume_pool(
        &self,
        request: proto::ResumePoolRequest,
    ) -> Result<proto::ResumePoolResponse, ClientError> {
        self.answer(self.admin().resume_pool(request)).await
    }

    pub async fn reload(&self, request: proto::ReloadRequest) -> Result<proto::ReloadResponse, ClientError> {
        self.answer(self.admin().reload(request)).await
    }

    /// Watches from when this returns.
    pub async fn watch_events(&self, request: proto::WatchEventsRequest) -> Result<PoolEventStream, ClientError> {
        let stream = self.answer(self.admin().watch_events(request)).await?;
        Ok(PoolEventStream { endpoint: self.endpoint.clone(), stream })
    }
}

impl PoolEventStream {
    /// The next event; `None` if the server has stopped. May be dropped and called again without losing an event.
    pub async fn next(&mut self) -> Result<Option<proto::PoolEvent>, ClientError> {
        let told = self.stream.message().await.map_err(|status| failed(&self.endpoint, &status))?;
        Ok(told.map(|told| told.event.unwrap_or_default()))
    }
}
