//! Routing: chooses the kind that serves a query.

use std::sync::Arc;

use thiserror::Error;

use crate::model::{QueryId, QuerySpec};

use super::{
    dispatcher::Dispatcher,
    kinds::{KindTable, PoolKind},
};

#[derive(Debug, Error, PartialEq, Eq)]
pub enum RoutingError {
    #[error("there is no kind {kind:?}; this pool has: {known}")]
    NoSuchKind { kind: String, known: String },
    #[error("no kind serves the type {query_type:?}; name a kind, or one of the types of: {known}")]
    NoSuchType { query_type: String, known: String },
    #[error("the query names neither kind nor type, and this pool has several kinds: {known}")]
    Unnamed { known: String },
    #[error("no kind {of}can do all of: {wanted}; this pool has: {known}")]
    Incapable { of: String, wanted: String, known: String },
    #[error("kind {kind} is keyed, so each of its queries needs a key: a worker serves one key only")]
    NoKey { kind: Arc<str> },
}

impl RoutingError {
    /// The field of the query that is at fault.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::NoSuchKind { .. } | Self::Unnamed { .. } => "query.kind",
            Self::NoSuchType { .. } => "query.type",
            Self::Incapable { .. } => "query.capabilities",
            Self::NoKey { .. } => "query.key",
        }
    }
}

impl KindTable {
    /// The kinds that can serve a query: the one it names, or those that serve its type and have its capabilities, or the
    /// only one there is. At least one, and several only if any of them will do.
    fn route(&self, name: Option<&str>, spec: &QuerySpec) -> Result<Vec<Arc<PoolKind>>, RoutingError> {
        let kinds = self.configured();
        let known = || known(&kinds);
        let matching = match (name, spec.query_type.as_deref()) {
            (Some(name), _) => {
                let named = kinds.iter().find(|kind| *kind.name == *name);
                let no_such = || RoutingError::NoSuchKind { kind: name.to_owned(), known: known() };
                vec![named.ok_or_else(no_such)?]
            }
            (None, Some(query_type)) => {
                let matching = serving(&kinds, query_type);
                if matching.is_empty() {
                    return Err(RoutingError::NoSuchType { query_type: query_type.to_owned(), known: known() });
                }
                matching
            }
            (None, None) => kinds.iter().collect(),
        };
        let capable: Vec<&Arc<PoolKind>> =
            matching.iter().copied().filter(|kind| kind.is_capable_of(spec.capabilities())).collect();
        match capable[..] {
            [] => {
                let of = if matching.len() < kinds.len() { format!("{} ", names(&matching)) } else { String::new() };
                Err(RoutingError::Incapable { of, wanted: spec.capabilities().join(", "), known: known() })
            }
            [kind] => Ok(vec![kind.clone()]),
            _ if spec.capabilities().is_empty() => Err(match &spec.query_type {
                // Several kinds take any type, and nothing says which one is meant.
                Some(query_type) => RoutingError::NoSuchType { query_type: query_type.to_string(), known: known() },
                None => RoutingError::Unnamed { known: known() },
            }),
            _ => Ok(capable.into_iter().cloned().collect()),
        }
    }

    /// The configured kinds with their types and capabilities, for error messages.
    pub(super) fn describe(&self) -> String {
        known(&self.configured())
    }
}

impl Dispatcher {
    /// Chooses the kind for a query. If several can serve it, a query that came before under the same id decides: it is
    /// the same query only if it is of the same kind.
    pub(super) async fn choose_kind(
        &self,
        name: Option<&str>,
        id: Option<&QueryId>,
        spec: &QuerySpec,
    ) -> Result<Arc<PoolKind>, RoutingError> {
        let kinds = &self.context.kinds;
        if spec.capabilities().is_empty()
            && (name.is_some() || spec.query_type.is_none())
            && let Some(kind) = kinds.single(name)
        {
            return Ok(kind);
        }
        let kinds = kinds.route(name, spec)?;
        if let [kind] = &kinds[..] {
            return Ok(kind.clone());
        }
        let earlier = match id {
            Some(id) => self.context.broker.get(id).await.ok(),
            None => None,
        };
        let chosen = earlier.and_then(|query| kinds.iter().find(|kind| kind.name == query.kind));
        Ok(chosen.cloned().unwrap_or_else(|| self.least_loaded(&kinds)))
    }

    /// The kind where a query waits least: one with a ready worker, then the one with the fewest waiting queries for its
    /// size, then the first in the configuration.
    fn least_loaded(&self, kinds: &[Arc<PoolKind>]) -> Arc<PoolKind> {
        let load = |kind: &&Arc<PoolKind>| {
            let waiting = self.context.broker.waiting_count(&kind.name) * 1_000 / kind.config().max.get();
            (kind.circuit_open_reason().is_some(), kind.ready.is_empty(), waiting)
        };
        Arc::clone(kinds.iter().min_by_key(load).expect("route returns at least one kind"))
    }
}

/// The kinds that list the type, or, if there are none, those that list no types and so serve any.
fn serving<'a>(kinds: &'a [Arc<PoolKind>], query_type: &str) -> Vec<&'a Arc<PoolKind>> {
    let lists = |kind: &&Arc<PoolKind>| kind.config().types.iter().any(|served| served == query_type);
    let listing: Vec<_> = kinds.iter().filter(lists).collect();
    if !listing.is_empty() {
        return listing;
    }
    kinds.iter().filter(|kind| kind.config().types.is_empty()).collect()
}

fn names(kinds: &[&Arc<PoolKind>]) -> String {
    kinds.iter().map(|kind| &*kind.name).collect::<Vec<_>>().join(", ")
}

fn known(kinds: &[Arc<PoolKind>]) -> String {
    let describe = |kind: &Arc<PoolKind>| {
        let types = kind.config().types.join(", ");
        let capabilities = kind.capabilities().join(", ");
        match (types.is_empty(), capabilities.is_empty()) {
            (true, true) => kind.name.to_string(),
            (false, true) => format!("{} (types {types})", kind.name),
            (true, false) => format!("{} (capabilities {capabilities})", kind.name),
            (false, false) => format!("{} (types {types}; capabilities {capabilities})", kind.name),
        }
    };
    kinds.iter().map(describe).collect::<Vec<_>>().join(", ")
}
