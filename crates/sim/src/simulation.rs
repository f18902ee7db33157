//! Runs nodes in a world: a node that is due gets its turn, one that crashes is dropped and made
//! anew.

use base::Instant;

use crate::{
    EndpointId, SimIo,
    world::{SharedWorld, Step},
};

/// A process that lives in the world: a run loop with its application.
pub trait Node {
    /// One turn of its loop; afterwards it says by [`base::Io::wait`] when it is due again.
    fn turn(&mut self);

    /// Its process is about to be killed: the last chance to hand over what was counted.
    fn crashed(&mut self) {}
}

/// A world and the nodes on its endpoints.
pub struct Simulation<N> {
    world: SharedWorld,
    nodes: Vec<Option<N>>,
    make: Box<dyn FnMut(SimIo) -> N>,
    turns: u64,
}

impl<N: Node> Simulation<N> {
    /// Puts a node made by `make` on every endpoint of the world, now and after each restart.
    pub fn new(world: SharedWorld, mut make: impl FnMut(SimIo) -> N + 'static) -> Self {
        let count = world.borrow().endpoints.len();
        let nodes = (0..count).map(|i| Some(make(SimIo::new(world.clone(), EndpointId(i)))));
        Self {
            nodes: nodes.collect(),
            world,
            make: Box::new(make),
            turns: 0,
        }
    }

    /// Lets one event happen; `None` when nothing is due until then. Ticks are returned.
    pub fn step(&mut self, until: Instant) -> Option<Step> {
        let step = self.world.borrow_mut().step(until)?;
        match step {
            Step::Turn(id) => {
                self.turns += 1;
                if let Some(node) = &mut self.nodes[id.0] {
                    node.turn();
                }
            }
            Step::Crashed(id) => {
                if let Some(mut node) = self.nodes[id.0].take() {
                    node.crashed();
                }
            }
            Step::Restarted(id) => {
                // A node that had ended normally: its program is started once more.
                if let Some(mut node) = self.nodes[id.0].take() {
                    node.crashed();
                }
                self.nodes[id.0] = Some((self.make)(SimIo::new(self.world.clone(), id)));
            }
            Step::Internal | Step::Tick(_) => {}
        }
        Some(step)
    }

    /// Runs until `is_done` says so, nothing is planned any more, or the time is over; true when
    /// `is_done` said so.
    pub fn run(&mut self, until: Instant, mut is_done: impl FnMut(&mut Self) -> bool) -> bool {
        let mut turns = self.turns;
        loop {
            if self.step(until).is_none() {
                return is_done(self);
            }
            if self.turns != turns {
                turns = self.turns;
                if is_done(self) {
                    return true;
                }
            }
        }
    }

    /// The world.
    #[must_use]
    pub const fn world(&self) -> &SharedWorld {
        &self.world
    }

    /// The nodes by endpoint; `None` while crashed.
    pub fn nodes(&self) -> impl Iterator<Item = (EndpointId, &N)> {
        self.nodes
            .iter()
            .enumerate()
            .filter_map(|(i, node)| Some((EndpointId(i), node.as_ref()?)))
    }

    /// The node on an endpoint; `None` while crashed.
    pub fn node_mut(&mut self, id: EndpointId) -> Option<&mut N> {
        self.nodes[id.0].as_mut()
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.world.borrow().now
    }

    /// Turns run so far.
    #[must_use]
    pub const fn turns(&self) -> u64 {
        self.turns
    }
}
