//! What was added to the swarm later: keys, endings, the forger. Each has a generator of its own,
//! so that adding it did not change the other draws of a seed.

use base::Rng;

use super::drawn;
use crate::{
    frame::index,
    pipe::Fault,
    plan::{EndPlan, Forgery, IntruderPlan, Plan},
    quantity::{Ratio, Span},
};

/// Draws, in one run of five, a host that imitates the senders, and links that change packets.
///
/// Messages then have a key, which all ends know, and the run promises what it would without the
/// forger. Trees have a key in two of three such runs. Without a key the forger may keep a receiver
/// out, and only this must hold: no wrong content and no false proof.
pub(super) fn with_forger(seed: u64, mut plan: Plan) -> Plan {
    let rng = &mut Rng::new(seed ^ 0x66_6f72_6765);
    let has_control = plan.objects.is_some() || plan.session.reports;
    if !has_control || !rng.chance(1, 5) {
        return plan;
    }
    let is_keyed = plan.objects.is_none() || rng.chance(2, 3);
    let calm_ms = plan.calm_at.map_or(3_000, |calm| calm.0.as_millis() as u64);
    for end in plan.senders.iter_mut().chain(&mut plan.receivers) {
        end.secret = is_keyed.then(|| "own".to_owned());
        if rng.chance(1, 3) {
            let chance = Ratio::per_mille(drawn(rng, 1, 50));
            end.ingress.push(Fault::Forge { chance });
        }
    }
    plan.intruder = Some(IntruderPlan {
        gap: Span::micros(rng.between(20, 5_000)),
        stops_after: Span::millis(calm_ms.min(2_000)),
        forges: Forgery::Senders,
    });
    plan.check.proven &= is_keyed;
    plan.check.all_delivered &= is_keyed;
    plan
}

/// Draws keys in one of three runs of messages with reports: each end has the key, another one or
/// none. A receiver that its sender waits for is promised the same as without keys.
pub(super) fn with_keys(seed: u64, mut plan: Plan) -> Plan {
    let rng = &mut Rng::new(seed ^ 0x6b65_7973);
    if plan.objects.is_some() || !plan.session.reports || !rng.chance(1, 3) {
        return plan;
    }
    let mut draw = |ends: &mut [EndPlan], without_one_in: u64| {
        for end in ends {
            let own = match rng.below(2 * without_one_in) {
                0 => None,
                1 => Some("another"),
                _ => Some("own"),
            };
            end.secret = own.map(str::to_owned);
        }
    };
    draw(&mut plan.senders, 6);
    draw(&mut plan.receivers, 3);
    // A receiver with another key may hear a forged session before the real one, because no sender
    // waits for it.
    let mut all = plan.senders.iter().chain(&plan.receivers);
    let is_alike = all.all(|end| end.secret == plan.senders[0].secret);
    if let Some(intruder) = &mut plan.intruder
        && !is_alike
    {
        intruder.forges = Forgery::Nothing;
    }
    plan
}

/// Draws, in one run of four, owners that end their programs early or do not wait for a good end.
pub(super) fn with_endings(seed: u64, mut plan: Plan) -> Plan {
    let rng = &mut Rng::new(seed ^ 0x0e2d_1465);
    if !rng.chance(1, 4) {
        return plan;
    }
    let calm_ms = plan.calm_at.map_or(3_000, |calm| calm.0.as_millis() as u64);
    if rng.chance(1, 2) {
        let leaving = index(rng.below(plan.receivers.len() as u64));
        plan.receivers[leaving].ends_at = Some(Span::millis(rng.between(1, calm_ms)));
        // When one receiver gives a tree up, the tree is not proven.
        plan.check.proven &= plan.objects.is_none();
    }
    if rng.chance(1, 2) {
        for sender in &mut plan.senders {
            sender.ends_at = Some(Span::millis(rng.between(1, calm_ms)));
        }
        plan.check.proven = false;
        plan.check.all_delivered &= plan.objects.is_none();
    }
    if rng.chance(1, 3) {
        for sender in &mut plan.senders {
            sender.patience = Span::millis(rng.between(0, 2_000));
        }
        plan.check.all_delivered &= plan.objects.is_some();
    }
    plan
}
