//! Runs nodes in a world: gives each node its turn when due, and makes a crashed node anew at its
//! restart.

use base::Instant;

use crate::{
    EndpointId, SimIo,
    world::{SharedWorld, Step},
};

/// A process that lives in the world: a run loop with its application.
pub trait Node {
    /// Runs one turn of the loop, which says by [`base::Io::wait`] when its next turn is due.
    fn turn(&mut self);

    /// Hands over counts for the last time: the process was killed, or has ended and starts anew.
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

    /// Lets one event happen, and returns it; `None` when none is due by `until`.
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
                // The program had ended normally and is started once more.
                if let Some(mut node) = self.nodes[id.0].take() {
                    node.crashed();
                }
                self.nodes[id.0] = Some((self.make)(SimIo::new(self.world.clone(), id)));
            }
            Step::Internal | Step::Tick(_) => {}
        }
        Some(step)
    }

    /// Runs until `is_done` holds, nothing is planned any more, or time `until` is reached. Returns
    /// true when `is_done` holds.
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

    /// Returns the world.
    #[must_use]
    pub const fn world(&self) -> &SharedWorld {
        &self.world
    }

    /// Returns the nodes by endpoint, without those that have crashed.
    pub fn nodes(&self) -> impl Iterator<Item = (EndpointId, &N)> {
        self.nodes
            .iter()
            .enumerate()
            .filter_map(|(i, node)| Some((EndpointId(i), node.as_ref()?)))
    }

    /// Returns the node on an endpoint; `None` while crashed.
    pub fn node_mut(&mut self, id: EndpointId) -> Option<&mut N> {
        self.nodes[id.0].as_mut()
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.world.borrow().now
    }

    /// Returns the number of turns run so far.
    #[must_use]
    pub const fn turns(&self) -> u64 {
        self.turns
    }
}
