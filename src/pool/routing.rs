//! Which kind serves a query.

use std::sync::Arc;

use thiserror::Error;

use crate::model::QuerySpec;

use super::{Inner, kinds::Kind};

/// No kind can be found for a query.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Unroutable {
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

impl Unroutable {
    /// The field of the query to look at.
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

impl Inner {
    /// The kinds that could serve a query: the one it names, else those that serve its type and can do what it needs,
    /// else the only one there is. At least one, and several only if any of them will do.
    pub(super) fn route(&self, name: Option<&str>, spec: &QuerySpec) -> Result<Vec<Arc<Kind>>, Unroutable> {
        let kinds = self.kinds.configured();
        let known = || known(&kinds);
        let fitting = match (name, spec.query_type.as_deref()) {
            (Some(name), _) => {
                let named = kinds.iter().find(|kind| *kind.name == *name);
                let no_such = || Unroutable::NoSuchKind { kind: name.to_owned(), known: known() };
                vec![named.ok_or_else(no_such)?]
            }
            (None, Some(query_type)) => {
                let fitting = serving(&kinds, query_type);
                if fitting.is_empty() {
                    return Err(Unroutable::NoSuchType { query_type: query_type.to_owned(), known: known() });
                }
                fitting
            }
            (None, None) => kinds.iter().collect(),
        };
        let capable: Vec<&Arc<Kind>> =
            fitting.iter().copied().filter(|kind| kind.is_capable_of(spec.capabilities())).collect();
        match capable[..] {
            [] => {
                let of = if fitting.len() < kinds.len() { format!("{} ", names(&fitting)) } else { String::new() };
                Err(Unroutable::Incapable { of, wanted: spec.capabilities().join(", "), known: known() })
            }
            [kind] => Ok(vec![kind.clone()]),
            _ if spec.capabilities().is_empty() => Err(match &spec.query_type {
                // Several kinds would take any type; which one is meant is not for us to guess.
                Some(query_type) => Unroutable::NoSuchType { query_type: query_type.to_string(), known: known() },
                None => Unroutable::Unnamed { known: known() },
            }),
            _ => Ok(capable.into_iter().cloned().collect()),
        }
    }

    /// Of several kinds that could serve a query, the one where it waits least: a ready worker first, then the shortest
    /// line for its size, then the order of the configuration.
    pub(super) fn least_loaded(&self, kinds: &[Arc<Kind>]) -> Arc<Kind> {
        let load = |kind: &&Arc<Kind>| {
            let waiting = self.broker.waiting_count(&kind.name) * 1_000 / kind.config().max.get();
            (kind.circuit_reason().is_some(), !self.data.has_ready(kind.slot), waiting)
        };
        Arc::clone(kinds.iter().min_by_key(load).expect("several were given"))
    }

    pub(super) fn known_kinds(&self) -> String {
        known(&self.kinds.configured())
    }
}

/// The kind that lists the type, or those that list none and so serve any.
fn serving<'a>(kinds: &'a [Arc<Kind>], query_type: &str) -> Vec<&'a Arc<Kind>> {
    let lists = |kind: &&Arc<Kind>| kind.config().types.iter().any(|served| served == query_type);
    let listing: Vec<_> = kinds.iter().filter(lists).collect();
    if !listing.is_empty() {
        return listing;
    }
    kinds.iter().filter(|kind| kind.config().types.is_empty()).collect()
}

fn names(kinds: &[&Arc<Kind>]) -> String {
    kinds.iter().map(|kind| &*kind.name).collect::<Vec<_>>().join(", ")
}

fn known(kinds: &[Arc<Kind>]) -> String {
    let describe = |kind: &Arc<Kind>| {
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
