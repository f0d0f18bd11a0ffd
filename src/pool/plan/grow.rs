//! Starts workers: up to the floor, for queries that have waited, and for keys that have none.

use std::{sync::Arc, time::Duration};

use super::{
    Planner, Step,
    capacity::{CapacityLimit, Shortage},
    view::{KindView, StartHealth},
};

/// A need that could not be met for lack of room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnmetNeed {
    pub limit: CapacityLimit,
    /// Time for which it has been unmet.
    pub waited: Duration,
    pub reason: String,
    /// The kind is below its floor, so replacing one of its own workers would not help.
    pub for_floor: bool,
}

/// The workers that a kind needs; one for each entry of `keys`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GrowthRequest {
    keys: Vec<Option<Arc<str>>>,
    reason: String,
    /// A query, or the kind, has no worker at all: others may have to make room.
    pub pressing: bool,
    for_floor: bool,
    waited: Duration,
}

impl Planner<'_> {
    /// Grants what there is room for, and returns the rest if it is pressing.
    pub(super) fn grow(&mut self, kind: &KindView, request: GrowthRequest) -> Vec<UnmetNeed> {
        let GrowthRequest { keys, reason, pressing, for_floor, waited } = request;
        let mut free = kind.config.max.get().saturating_sub(kind.present());
        let mut leaving = kind.leaving();
        let mut granted = Vec::new();
        let mut unmet = Vec::new();
        for key in keys {
            let taken = if free > 0 {
                self.capacity.take(kind.memory())
            } else if leaving > 0 {
                // A worker of the kind is stopping, and makes room.
                leaving -= 1;
                self.capacity.set_aside(kind.memory());
                Err(Shortage::Pending)
            } else {
                Err(Shortage::Limit(CapacityLimit::KindMax))
            };
            match taken {
                Ok(()) => granted.push(key),
                Err(Shortage::Starts) => break,
                Err(_) if !pressing => break,
                Err(Shortage::Pending) => {}
                Err(Shortage::Limit(limit)) => {
                    unmet.push(UnmetNeed { limit, waited, reason: reason.clone(), for_floor });
                    continue;
                }
            }
            free = free.saturating_sub(1);
        }
        if !granted.is_empty() {
            self.steps.push(Step::Grow { kind: kind.kind, keys: granted, reason });
        }
        unmet
    }
}

/// The workers that the kind would get if there were room for everything.
pub(super) fn request(kind: &KindView) -> Option<GrowthRequest> {
    if kind.starts == StartHealth::Delayed {
        return None;
    }
    let mut request = for_floor(kind).or_else(|| for_keys(kind)).or_else(|| for_load(kind))?;
    if kind.starts == StartHealth::Failing {
        request.keys.truncate(1usize.saturating_sub(kind.starting()));
    }
    (!request.keys.is_empty()).then_some(request)
}

fn for_floor(kind: &KindView) -> Option<GrowthRequest> {
    let live = kind.live();
    let missing = kind.floor.checked_sub(live).filter(|missing| *missing > 0)?;
    let reason = if kind.floor > kind.config.min {
        format!("{live} of the {} workers that were asked for", kind.floor)
    } else {
        format!("{live} of min {} workers", kind.floor)
    };
    let waited = kind.short_for.max(kind.demand.oldest.unwrap_or_default());
    Some(GrowthRequest { keys: vec![None; missing], reason, pressing: true, for_floor: true, waited })
}

/// Each waiting key without a worker needs one of its own, however many workers there are.
fn for_keys(kind: &KindView) -> Option<GrowthRequest> {
    if !kind.config.keyed || kind.ready {
        return None;
    }
    // Workers that are starting without a key take the first keys.
    let unbound = kind.workers.iter().filter(|worker| worker.is_starting() && !worker.bound).count();
    if kind.demand.lanes.is_empty() && kind.demand.open > 0 && unbound == 0 {
        // They came before the kind was keyed, and any worker that is not bound yet can run them.
        let (reason, waited) = ("queries without a key wait".to_owned(), kind.demand.oldest.unwrap_or_default());
        return Some(GrowthRequest { keys: vec![None], reason, pressing: true, for_floor: false, waited });
    }
    let lanes: Vec<&(Arc<str>, Duration)> = kind.demand.lanes.iter().skip(unbound).collect();
    let (first, waited) = lanes.first()?;
    let reason = match lanes.len() {
        1 => format!("key {first:?} has no worker"),
        several => format!("{several} keys have no worker, {first:?} first"),
    };
    let keys = lanes.iter().map(|(key, _)| Some(key.clone())).collect();
    Some(GrowthRequest { keys, reason, pressing: true, for_floor: false, waited: *waited })
}

fn for_load(kind: &KindView) -> Option<GrowthRequest> {
    let demand = kind.demand.open;
    if kind.config.keyed || kind.ready || demand == 0 {
        return None;
    }
    let request = |workers: usize, reason: String, pressing: bool| {
        let waited = kind.demand.oldest.unwrap_or_default();
        Some(GrowthRequest { keys: vec![None; workers], reason, pressing, for_floor: false, waited })
    };
    let missing = demand.saturating_sub(kind.starting());
    if kind.live() == 0 {
        return request(missing, format!("no worker, and {demand} waiting"), true);
    }
    let config = &kind.config;
    let waited = kind.demand.oldest.unwrap_or_default();
    let settled = kind.since_growth.is_none_or(|since| since >= config.scale_up_after);
    if waited < config.scale_up_after || !settled {
        return None;
    }
    if demand > config.scale_up_depth {
        let reason = format!("{demand} waiting (scale_up_depth {})", config.scale_up_depth);
        return request(config.scale_up_step.get().min(missing), reason, false);
    }
    let reason = format!("a query has waited {:.1?} (scale_up_after {:?})", waited, config.scale_up_after);
    request(missing.min(1), reason, false)
}
