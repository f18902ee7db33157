//! The packets that wait to be repaired, and their order: each receiver that asks gets a queue,
//! here called a line.
//!
//! The module does not know packets, times or budgets. Suppose that one receiver asks for thousands
//! of packets, and another for a few. Those few packets then wait for one turn of the first
//! receiver, not for all its packets. A packet that several receivers ask for stands in the line of
//! each, and leaves all lines when it is sent. So a receiver that asks for little gets its repair
//! soon, even if the packet stands far back in another receiver's line.
//!
//! ```text
//!   waiting   [..123456789...........]   all packets to repair: the window must keep them
//!   line A    [..123456789...........]   a receiver that asks for packets 1 to 9
//!   line B    [.......6..............]   a receiver that asks for packet 6
//!   sent      1 2 | 6 | 3 4 | 5 7 | ...  turns, of about `turn_bytes` bytes each
//! ```
//!
//! A line belongs to one network address and port while a packet stands in it. An empty line may be
//! taken by another receiver. A receiver that asks when all lines are taken shares the shortest
//! line, so forged addresses cannot make the number of lines grow. Each line is repaired in rounds
//! of ascending position, so that a flood of requests for old packets cannot starve new ones.
//!
//! Invariants: a position is in `waiting` exactly when it is in a line; all positions lie within
//! `capacity` of each other, which the transmit log's `hold` guarantees.
//!
//! **Spec**: RFC 3208 section 5.3 leaves the order of repairs to the source.

use std::net::SocketAddr;

use super::position_set::PositionSet;

/// The positions to repair, in a fair order.
///
/// **Cost**: about one bit for each position in each line, allocated once; the operating system
/// supplies the memory of a line as it is first used. Insertion looks at two bits, removal at one
/// bit in each line.
#[derive(Debug)]
pub(super) struct RepairQueue {
    waiting: PositionSet,
    lines: Vec<Line>,
    /// The index in `lines` of the line whose turn it is, and the bytes sent in this turn.
    turn: usize,
    turn_spent: usize,
}

/// A line (queue) of the positions whose repair one receiver asks for.
#[derive(Debug)]
struct Line {
    owner: Option<SocketAddr>,
    set: PositionSet,
    cursor: u64,
    round_end: u64,
}

/// One of the lines of a [`RepairQueue`], valid until the next call of [`RepairQueue::line_of`].
#[derive(Clone, Copy, Debug)]
pub(super) struct LineId(usize);

impl RepairQueue {
    /// Makes a queue for positions within `capacity` (a power of two, at least 64) of each other.
    pub(super) fn new(capacity: u64) -> Self {
        let line = || Line {
            owner: None,
            set: PositionSet::new(capacity),
            cursor: 0,
            round_end: 0,
        };
        Self {
            waiting: PositionSet::new(capacity),
            lines: std::iter::repeat_with(line).take(LINES).collect(),
            turn: 0,
            turn_spent: 0,
        }
    }

    /// Returns the line that the receiver at `address` has, or else the shortest line.
    pub(super) fn line_of(&mut self, address: SocketAddr) -> LineId {
        #[cfg(feature = "planted-bugs")]
        if base::planted::is_planted(base::planted::Bug::RepairsInOneLine) {
            return LineId(0);
        }
        let own = |line: &Line| line.owner == Some(address);
        let shortest = || (0..LINES).min_by_key(|&index| self.lines[index].set.len());
        let index = self.lines.iter().position(own).or_else(shortest);
        let index = index.expect("there are lines");
        let line = &mut self.lines[index];
        if line.set.is_empty() {
            line.owner = Some(address);
        }
        LineId(index)
    }

    /// Adds a position to a line. Returns false when the position waits already, in this line or
    /// another.
    pub(super) fn insert(&mut self, line: LineId, position: u64) -> bool {
        self.lines[line.0].set.insert(position);
        self.waiting.insert(position)
    }

    /// Returns the position to repair next; the caller checks that there is one. `unsent` is the
    /// first position that was never sent.
    ///
    /// A round begins at the oldest position, and ends before those that were unsent when it began.
    /// So the oldest packet gets its turn, however fast NAKs for newer packets come.
    pub(super) fn next(&mut self, unsent: u64) -> u64 {
        if self.lines[self.turn].set.is_empty() {
            self.pass_on();
        }
        let line = &mut self.lines[self.turn];
        let next = line.set.next_from(line.cursor);
        match next.filter(|&position| position < line.round_end) {
            Some(position) => position,
            None => {
                line.round_end = unsent;
                line.set.oldest()
            }
        }
    }

    /// Returns the next position after `position` in the line that has the turn.
    pub(super) fn after(&self, position: u64) -> Option<u64> {
        self.lines[self.turn].set.next_from(position + 1)
    }

    /// Notes that the packet at `position` was repaired, and takes it out of every line.
    pub(super) fn remove(&mut self, position: u64) {
        self.waiting.remove(position);
        for line in &mut self.lines {
            line.set.remove(position);
        }
        self.lines[self.turn].cursor = position + 1;
    }

    /// Notes that `bytes` of repairs were sent. The line's turn ends if it has sent `turn_bytes` or
    /// more, or the line is empty.
    pub(super) fn spend(&mut self, bytes: usize, turn_bytes: usize) {
        self.turn_spent += bytes;
        if self.turn_spent >= turn_bytes || self.lines[self.turn].set.is_empty() {
            self.pass_on();
        }
    }

    /// Makes `position` the next one to repair in every line that contains it.
    pub(super) fn hasten(&mut self, position: u64) {
        for line in &mut self.lines {
            if line.set.contains(position) {
                line.cursor = position;
            }
        }
    }

    /// Takes every position out.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.lines.iter_mut().for_each(|line| line.set.clear());
    }

    /// Returns true when the position waits for repair.
    pub(super) fn contains(&self, position: u64) -> bool {
        self.waiting.contains(position)
    }

    /// Returns the lowest position that waits for repair, `u64::MAX` for none. The window must keep
    /// that packet.
    #[inline]
    pub(super) const fn oldest(&self) -> u64 {
        self.waiting.oldest()
    }

    /// Returns true when no position waits for repair.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Gives the turn to the next line that is not empty, if there is one.
    fn pass_on(&mut self) {
        self.turn_spent = 0;
        let others = (1..=LINES).map(|step| (self.turn + step) % LINES);
        let mut waiting = others.filter(|&index| !self.lines[index].set.is_empty());
        if let Some(index) = waiting.next() {
            self.turn = index;
        }
    }
}

/// The number of lines (queues, each for one receiver that asks for repairs). Judgement: at most 16
/// receivers need many repairs at the same time; further receivers share lines.
const LINES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], port))
    }

    /// Everything that waits, in the order of its repair, in runs of `run` packets of 100 bytes
    /// and turns of `turn` packets.
    fn served(queue: &mut RepairQueue, run: usize, turn: usize) -> Vec<u64> {
        let mut all = Vec::new();
        while !queue.is_empty() {
            let first = queue.next(u64::MAX);
            let rest = std::iter::successors(Some(first), |&position| queue.after(position));
            let sent: Vec<_> = rest.take(run).collect();
            sent.iter().for_each(|&position| queue.remove(position));
            queue.spend(100 * sent.len(), 100 * turn);
            all.extend(sent);
        }
        all
    }

    #[test]
    fn those_who_ask_take_turns() {
        let mut queue = RepairQueue::new(1024);
        let stopped = queue.line_of(asker(1, 7));
        for position in 100..400 {
            assert!(queue.insert(stopped, position));
        }
        let healthy = queue.line_of(asker(2, 7));
        assert!(queue.insert(healthy, 90), "asked for by nobody else");
        assert!(!queue.insert(healthy, 350), "deep in the other's line");
        assert_eq!(queue.oldest(), 90);
        let order = served(&mut queue, 4, 8);
        let at = |wanted| order.iter().position(|&position| position == wanted);
        assert_eq!(order.len(), 301);
        assert_eq!((at(90), at(350)), (Some(8), Some(9)));
        let of_stopped: Vec<_> = order.iter().filter(|&&at| at != 90 && at != 350).collect();
        assert!(of_stopped.is_sorted());
    }

    #[test]
    fn a_line_is_taken_over_when_it_is_empty_and_shared_when_none_is() {
        let mut queue = RepairQueue::new(1024);
        for host in 0..40 {
            let line = queue.line_of(asker(host, 1));
            queue.insert(line, 500);
            queue.remove(500);
        }
        let long = queue.line_of(asker(99, 1));
        (0..100).for_each(|position| {
            queue.insert(long, position);
        });
        for port in 0..60 {
            let line = queue.line_of(asker(7, port));
            assert_ne!(line.0, long.0, "the longest line gets no company");
            queue.insert(line, 200 + u64::from(port));
        }
        let order = served(&mut queue, 1, 1);
        let last_short = order.iter().rposition(|&position| position >= 200);
        assert!(last_short < Some(16 * 4), "{last_short:?}");
        assert_eq!(order.len(), 160);
    }

    #[test]
    fn what_the_window_waits_for_is_the_next_of_its_line() {
        let mut queue = RepairQueue::new(64);
        let line = queue.line_of(asker(1, 1));
        (10..20).for_each(|position| {
            queue.insert(line, position);
        });
        assert_eq!(queue.next(100), 10);
        queue.hasten(15);
        assert_eq!(queue.next(100), 15);
        queue.clear();
        assert!(queue.is_empty() && !queue.contains(15));
    }
}
