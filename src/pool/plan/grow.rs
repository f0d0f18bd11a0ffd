//! Starts workers: up to the floor, for queries that have waited, and for keys that have none.

use std::{sync::Arc, time::Duration};

use super::{
    Step,
    capacity::{FreeCapacity, Shortage},
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CapacityLimit {
    /// The kind's own `max`: only a worker of the same kind can make room.
    KindMax,
    PoolMax,
    Memory,
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

/// Grants what there is room for, and returns the rest if it is pressing.
pub(super) fn plan(
    kind: &KindView,
    request: GrowthRequest,
    capacity: &mut FreeCapacity,
    steps: &mut Vec<Step>,
) -> Vec<UnmetNeed> {
    let mut free = kind.config.max.get().saturating_sub(kind.present());
    let mut leaving = kind.leaving();
    let mut granted = Vec::new();
    let mut unmet = Vec::new();
    for key in request.keys {
        let limit = if free > 0 {
            match capacity.take(kind.memory()) {
                Ok(()) => {
                    free -= 1;
                    granted.push(key);
                    continue;
                }
                Err(Shortage::Starts) => break,
                Err(Shortage::Pending) => {
                    free -= 1;
                    None
                }
                Err(Shortage::Workers) => Some(CapacityLimit::PoolMax),
                Err(Shortage::Memory) => Some(CapacityLimit::Memory),
            }
        } else if leaving > 0 {
            // A worker of the kind is stopping, and makes room.
            leaving -= 1;
            capacity.set_aside(kind.memory());
            None
        } else {
            Some(CapacityLimit::KindMax)
        };
        if !request.pressing {
            break;
        }
        let (waited, for_floor) = (request.waited, request.for_floor);
        unmet.extend(limit.map(|limit| UnmetNeed { limit, waited, reason: request.reason.clone(), for_floor }));
    }
    if !granted.is_empty() {
        steps.push(Step::Grow { kind: kind.kind, keys: granted, reason: request.reason });
    }
    unmet
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
