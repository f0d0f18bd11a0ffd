//! Starts workers: up to what is always kept, for queries that have waited, and for keys that have none.

use std::{sync::Arc, time::Duration};

use super::{
    Step,
    room::{Lack, Room},
    view::{KindView, Starts},
};

/// A need that could not be met for lack of room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unmet {
    pub lack: Limit,
    /// How long it has been felt.
    pub waited: Duration,
    pub what: String,
    /// Another worker in place of one of its own would not help.
    pub for_floor: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// The kind's own `max`: only a worker of the same kind can make room.
    Kind,
    Places,
    Memory,
}

/// How many workers are wanted, for which keys, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wish {
    keys: Vec<Option<Arc<str>>>,
    reason: String,
    /// Without them a query, or the kind, has no worker at all: others may have to make room.
    pub pressing: bool,
    for_floor: bool,
    waited: Duration,
}

/// Grants what there is room for, and gives back the rest if it is pressing.
pub(super) fn plan(kind: &KindView, wish: Wish, room: &mut Room, steps: &mut Vec<Step>) -> Vec<Unmet> {
    let mut places = kind.config.max.get().saturating_sub(kind.present());
    let mut coming = kind.leaving();
    let mut granted = Vec::new();
    let mut unmet = Vec::new();
    for key in wish.keys {
        let lack = if places > 0 {
            match room.take(kind.memory()) {
                Ok(()) => {
                    places -= 1;
                    granted.push(key);
                    continue;
                }
                Err(Lack::Starts) => break,
                Err(Lack::Soon) => {
                    places -= 1;
                    None
                }
                Err(Lack::Places) => Some(Limit::Places),
                Err(Lack::Memory) => Some(Limit::Memory),
            }
        } else if coming > 0 {
            // A worker of the kind is leaving: its place is as good as free.
            coming -= 1;
            room.set_aside(kind.memory());
            None
        } else {
            Some(Limit::Kind)
        };
        if !wish.pressing {
            break;
        }
        let (waited, for_floor) = (wish.waited, wish.for_floor);
        unmet.extend(lack.map(|lack| Unmet { lack, waited, what: wish.reason.clone(), for_floor }));
    }
    if !granted.is_empty() {
        steps.push(Step::Grow { kind: kind.kind, keys: granted, reason: wish.reason });
    }
    unmet
}

/// What the kind would have if there were room for everything.
pub(super) fn wish(kind: &KindView) -> Option<Wish> {
    if kind.starts == Starts::PutOff {
        return None;
    }
    let mut wish = for_floor(kind).or_else(|| for_keys(kind)).or_else(|| for_load(kind))?;
    if kind.starts == Starts::Troubled {
        wish.keys.truncate(1usize.saturating_sub(kind.starting()));
    }
    (!wish.keys.is_empty()).then_some(wish)
}

fn for_floor(kind: &KindView) -> Option<Wish> {
    let live = kind.live();
    let missing = kind.floor.checked_sub(live).filter(|missing| *missing > 0)?;
    let reason = if kind.floor > kind.config.min {
        format!("{live} of the {} workers that were asked for", kind.floor)
    } else {
        format!("{live} of min {} workers", kind.floor)
    };
    let waited = kind.short_for.max(kind.demand.oldest.unwrap_or_default());
    Some(Wish { keys: vec![None; missing], reason, pressing: true, for_floor: true, waited })
}

/// Each key that waits without a worker needs one of its own, however many workers there are.
fn for_keys(kind: &KindView) -> Option<Wish> {
    if !kind.config.keyed || kind.ready {
        return None;
    }
    // Those that are starting for no key in particular take the first ones.
    let unbound = kind.workers.iter().filter(|worker| worker.is_starting() && !worker.bound).count();
    if kind.demand.lanes.is_empty() && kind.demand.open > 0 && unbound == 0 {
        // They came before the kind was keyed, and any worker that is not bound yet will do.
        let (reason, waited) = ("queries without a key wait".to_owned(), kind.demand.oldest.unwrap_or_default());
        return Some(Wish { keys: vec![None], reason, pressing: true, for_floor: false, waited });
    }
    let lanes: Vec<&(Arc<str>, Duration)> = kind.demand.lanes.iter().skip(unbound).collect();
    let (first, waited) = lanes.first()?;
    let reason = match lanes.len() {
        1 => format!("key {first:?} has no worker"),
        several => format!("{several} keys have no worker, {first:?} first"),
    };
    let keys = lanes.iter().map(|(key, _)| Some(key.clone())).collect();
    Some(Wish { keys, reason, pressing: true, for_floor: false, waited: *waited })
}

fn for_load(kind: &KindView) -> Option<Wish> {
    let demand = kind.demand.open;
    if kind.config.keyed || kind.ready || demand == 0 {
        return None;
    }
    let wish = |workers: usize, reason: String, pressing: bool| {
        let waited = kind.demand.oldest.unwrap_or_default();
        Some(Wish { keys: vec![None; workers], reason, pressing, for_floor: false, waited })
    };
    let coming = demand.saturating_sub(kind.starting());
    if kind.live() == 0 {
        return wish(coming, format!("no worker, and {demand} waiting"), true);
    }
    let config = &kind.config;
    let waited = kind.demand.oldest.unwrap_or_default();
    let settled = kind.since_growth.is_none_or(|since| since >= config.scale_up_after);
    if waited < config.scale_up_after || !settled {
        return None;
    }
    if demand > config.scale_up_depth {
        let reason = format!("{demand} waiting (scale_up_depth {})", config.scale_up_depth);
        return wish(config.scale_up_step.get().min(coming), reason, false);
    }
    let reason = format!("a query has waited {:.1?} (scale_up_after {:?})", waited, config.scale_up_after);
    wish(coming.min(1), reason, false)
}
