//! The sender of a manifest: gathers receivers, sends what they lack in passes, and collects their
//! proofs.
//!
//! It hands blocks to the owner of the packet stream. It sees positions of that stream, but no
//! packets. It reads content through [`Content`].
//!
//! ```text
//!   Joining   --expected joined, or join deadline--> pass 0: manifest
//!
//!   pass:   Sending --> (Hashing --> seals) --> Draining --PASS_END--> Answering
//!              ^                                                          |
//!              '------------- somebody lacks something: next pass --------+
//!                                                                         v
//!   Closing <-- every expected receiver is done or has failed <--------- Idle
//! ```
//!
//! Beside all this, blocks that only a few receivers lack go to these alone, over their
//! connections.
//!
//! Invariants: no content is sent before at least one receiver holds the manifest. After a pass,
//! the sender awaits the answers of connected expected receivers only, and for the answer timeout
//! at most. A receiver that owes something and makes no progress for the progress timeout has
//! failed. The outcome never changes once it is final.
//!
//! **Spec**: `docs/src/protocol.md` sections 6, 8 and 10.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use base::{Contract, Instant, LinkId, earliest};
use wire::{
    Sqn,
    object::{BlockHeader, ErrorCode, ObjectId},
};

use crate::parameters::{DISK_PATIENCE, HOLD_PATIENCE, SENDER_TICK};
use crate::{
    Content, Hash, HostCounts, LinkCommand, Manifest, RateControl, RateLimit, SourceState,
    Steering,
    control::{Invitations, Listener},
    events::Events,
    proof::Holding,
};

mod config;
pub use config::{
    BlockPlan, Carriage, Demotion, Limit, ReceiverReport, ReceiverState, SlowPolicy,
    TransferOutcome, TransferSenderConfig, TransferSenderCounters, TransferSenderEvent, Unsent,
};

mod control;

mod end;

mod fill;
use fill::Filling;

mod links;

mod member;
use member::Member;

mod pass;
use pass::{Needs, Place};

mod slow;

mod stage;

mod withdraw;

mod window;
use window::Window;

/// A sender of one manifest to many receivers.
#[derive(Debug)]
pub struct TransferSender<C> {
    config: TransferSenderConfig,
    manifest: Arc<Manifest>,
    window: Window<C>,
    listener: Listener,
    /// The hosts that this sender dials; none when there is a packet stream, because receivers then
    /// dial.
    invitations: Invitations,
    /// The receivers by slot.
    members: Vec<Member>,
    roll: Roll,
    /// The hosts of admitted receivers, each with the number of its receivers. A receiver counts at
    /// the address that it last came from.
    hosts: HostCounts,
    /// Slots of the receivers that still get blocks over their connections.
    filling: Filling,
    stage: Stage,
    pass: Pass,
    /// The hashes and lengths of the whole content that a receiver may prove to hold, oldest first.
    /// The first is added when all content is hashed, and one more whenever files are withdrawn
    /// later.
    holdings: Vec<Holding>,
    unsent: Vec<Unsent>,
    failure: Option<(ErrorCode, String)>,
    /// The pass sends nothing, because no receiver that it serves is connected.
    is_paused: bool,
    clock: Clock,
    /// The longest of the receivers' round trips. A report may raise it at once; every tick
    /// computes it anew.
    round_trip: Option<Duration>,
    rate: Option<RateControl>,
    events: Events<TransferSenderEvent>,
    counters: TransferSenderCounters,
}

/// An index of the receivers, and an account of the expected ones.
#[derive(Debug, Default)]
struct Roll {
    by_link: BTreeMap<LinkId, usize>,
    by_name: BTreeMap<String, usize>,
    /// How many expected receivers have joined.
    expected_count: usize,
    /// The slots of expected receivers that are neither done nor have failed.
    unfinished: BTreeSet<usize>,
}

/// Times of past events, and deadlines.
#[derive(Debug)]
struct Clock {
    contract: Contract,
    /// The time of the last timeout or control-connection event, whichever came later.
    now: Instant,
    /// When to check deadlines next.
    tick_at: Instant,
    join_deadline: Instant,
    /// When the last new receiver joined.
    joined_at: Instant,
    /// When the manifest's pass began; before that, when this sender was made.
    began_at: Instant,
    /// The time until which guests are served; `None` while an expected receiver is neither done
    /// nor failed.
    guests_until: Option<Instant>,
    /// When blocks were last committed to the packet stream.
    committed_at: Instant,
    /// When to look for slow receivers next.
    slow_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The sender waits for receivers.
    Joining,
    /// Blocks of the pass go into the packet stream.
    Sending,
    /// All content of the pass was given to the packet stream. The pass goes on when all content is
    /// hashed, including the content that no pass has sent.
    Hashing,
    /// The packet stream sends the blocks that it was given.
    Draining,
    /// The receivers say what they lack.
    Answering { deadline: Instant },
    /// The packet stream has nothing to send. Blocks may still go to receivers over their
    /// connections.
    Idle,
    /// The outcome is final, and the receivers are being told.
    Closing { deadline: Instant },
    /// The transfer is over: the connections are closed, or their time to close has passed.
    Closed,
}

/// What the current pass sends to all receivers.
#[derive(Debug)]
struct Pass {
    number: u32,
    needs: Needs,
    at: Place,
    last_position: Option<u64>,
    has_seals: bool,
}

impl<C: Content> TransferSender<C> {
    /// Makes a sender of `manifest`; the join deadline counts from `now`.
    #[must_use]
    pub fn new(
        config: TransferSenderConfig,
        manifest: Arc<Manifest>,
        content: C,
        now: Instant,
    ) -> Self {
        let clock = Clock {
            contract: Contract::default(),
            now,
            tick_at: now + SENDER_TICK,
            join_deadline: now + config.join_timeout,
            joined_at: now,
            began_at: now,
            guests_until: None,
            committed_at: now,
            slow_at: now,
        };
        let pass = Pass {
            number: 0,
            needs: Needs::new(config.ranges_max),
            at: Place::START,
            last_position: None,
            has_seals: false,
        };
        let invitations = match &config.carriage {
            Carriage::Packets => Invitations::default(),
            Carriage::Links(peers) => Invitations::new(now, peers),
        };
        let mut sender = Self {
            invitations,
            window: Window::new(Arc::clone(&manifest), content, config.withdraws),
            manifest,
            listener: Listener::new(config.session_id, config.receivers_max)
                .with_key(config.key.clone(), config.seed)
                .with_admission(config.admission.clone()),
            members: Vec::new(),
            roll: Roll::default(),
            hosts: HostCounts::default(),
            filling: Filling::default(),
            stage: Stage::Joining,
            pass,
            clock,
            holdings: Vec::new(),
            unsent: Vec::new(),
            failure: None,
            is_paused: false,
            round_trip: None,
            rate: config.rate.map(|rate| RateControl::new(rate, now)),
            events: Events::default(),
            counters: TransferSenderCounters::default(),
            config,
        };
        // Without content there is nothing to hash, so the hashes are complete already.
        if sender.window.hashes().is_some() {
            sender.note_holding();
        }
        sender
    }

    /// Returns the next blocks for the packet stream, each at most `payload_max` bytes long with
    /// its header. The call changes nothing.
    ///
    /// `None` while the packet stream is to get nothing: the pass has nothing more for it, or is
    /// paused.
    #[must_use]
    pub fn next_block(&self, payload_max: usize) -> Option<BlockPlan> {
        if self.stage != Stage::Sending || self.is_paused {
            return None;
        }
        let data_max = payload_max
            .checked_sub(BlockHeader::LEN)
            .filter(|&max| max > 0)?;
        let (object, range) = self.pass.needs.next_after(self.pass.at)?;
        let left = range.end - range.start;
        let (data, count) = if left >= data_max as u64 {
            let count = left / data_max as u64;
            (data_max, usize::try_from(count).unwrap_or(usize::MAX))
        } else {
            (usize::try_from(left).expect("less than one payload"), 1)
        };
        Some(BlockPlan {
            object,
            offset: range.start,
            len: BlockHeader::LEN + data,
            count,
        })
    }

    /// Writes the `nth` block that [`TransferSender::next_block`] announced into `out`, header
    /// first.
    ///
    /// Returns false when the content cannot be read, and the transfer ends, or when the content is
    /// not there yet: the block must not be sent now.
    pub fn fill(&mut self, now: Instant, block: &BlockPlan, nth: usize, out: &mut [u8]) -> bool {
        let data = (block.len - BlockHeader::LEN) as u64;
        let offset = block.offset + nth as u64 * data;
        let (header, bytes) = out[..block.len].split_at_mut(BlockHeader::LEN);
        header.copy_from_slice(&BlockHeader::data(block.object, offset).to_bytes());
        match self.window.copy(block.object, offset, bytes) {
            Ok(Poll::Pending) => {
                let _is_news = self.note_withdrawn();
                false
            }
            Ok(Poll::Ready(())) => {
                // Even if its file was just withdrawn, this block is sent; the pass skips the
                // file's rest.
                let _is_news = self.note_withdrawn();
                true
            }
            Err(error) => {
                self.content_failed(now, error);
                false
            }
        }
    }

    /// Notes that the first `count` of the blocks that [`TransferSender::next_block`] announced
    /// were committed to the packet stream. The last of these has the position `last_position`.
    pub fn blocks_committed(
        &mut self,
        now: Instant,
        block: &BlockPlan,
        count: usize,
        last_position: u64,
    ) {
        if count == 0 || self.stage != Stage::Sending {
            return;
        }
        let bytes = (block.len - BlockHeader::LEN) as u64 * count as u64;
        self.pass.at = Place {
            object: block.object,
            offset: block.offset + bytes,
        };
        self.pass.last_position = Some(last_position);
        self.counters.block_bytes += bytes;
        if block.object == ObjectId::CONTENT {
            self.counters.content_block_bytes += bytes;
        }
        self.clock.committed_at = now;
        self.advance(now);
    }

    /// Returns true when all blocks of the pass were committed. The owner then calls
    /// [`TransferSender::pass_drained`] when the packet stream has sent them.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.stage == Stage::Draining
    }

    /// Notes that the packet stream has sent everything up to the last committed block.
    pub fn pass_drained(&mut self, now: Instant) {
        if self.stage == Stage::Draining {
            self.end_pass(now);
        }
    }

    /// Returns true while the pass may put content into the packet stream.
    #[must_use]
    pub fn may_send_content(&self) -> bool {
        self.stage == Stage::Sending && self.pass.number > 0
    }

    /// Ends the transfer, and tells every receiver that is not done why.
    pub fn cancel(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if self.is_finished() {
            return;
        }
        self.failure = Some((code, text.to_owned()));
        for slot in 0..self.members.len() {
            self.fail(now, slot, code, text);
        }
        if !self.is_finished() {
            self.finish(now);
        }
    }

    /// Returns the position from which on the packet stream should keep everything for the slowest
    /// receiver; `lead` is the stream's highest position.
    ///
    /// The stream does not wait for a receiver whose position has not moved for 1 s: the next pass
    /// sends what this receiver misses. But if the receiver has ever had to wait for its disk and
    /// keeps reporting, the stream waits for it as long as the policy for slow receivers allows.
    #[must_use]
    pub fn hold(&self, lead: u64) -> Option<u64> {
        if !matches!(
            self.stage,
            Stage::Sending | Stage::Hashing | Stage::Draining
        ) {
            return None;
        }
        let is_awake = |member: &&Member, at: Instant| {
            let has_moved = self.clock.now.since(at) < HOLD_PATIENCE;
            let is_at_disk = member.told.progress.store_waits > 0;
            has_moved || is_at_disk && self.clock.now.since(member.heard_at) < DISK_PATIENCE
        };
        let held_by = self.members.iter().filter(|member| {
            member.is_followed()
                && member
                    .stream
                    .moved_at
                    .is_some_and(|at| is_awake(member, at))
        });
        let position = |member: &Member| {
            Sqn::of(member.stream.pos.contiguous)
                .extend(lead)
                .min(lead + 1)
        };
        held_by.map(position).min()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.clock.contract.tell_time(now);
        let is_deadline = self
            .stage_deadline()
            .is_some_and(|at| at <= now && at > self.clock.now);
        self.clock.now = now;
        self.check_line(now);
        self.put_off_deadline(now);
        self.dial(now);
        if self.hashes_now() {
            self.hash(now);
        }
        if now < self.clock.tick_at && !is_deadline {
            return;
        }
        self.clock.tick_at = now + SENDER_TICK;
        let active = self.members.iter().filter(|member| member.is_active());
        self.round_trip = active.filter_map(|m| m.stream.round_trip.least()).max();
        self.forget_unfollowed();
        self.counters.greetings_late += self.listener.expire(now);
        self.counters.greetings_cut += self.listener.take_cut();
        let links = &self.listener.links;
        self.invitations.check(now, |link| links.contains(link));
        match self.stage {
            Stage::Joining => self.all_joined(now),
            Stage::Answering { deadline } if now >= deadline => self.stop_waiting(now),
            Stage::Closing { deadline } => {
                if now >= deadline || self.listener.links.len() == 0 {
                    self.stage = Stage::Closed;
                }
                // The sending program waits for this stage to end, so the next check comes soon.
                self.clock.tick_at = now + SENDER_TICK / 10;
                return;
            }
            _ => {}
        }
        for slot in 0..self.members.len() {
            self.check_progress(now, slot);
        }
        self.check_paused();
        self.check_answers(now);
        self.check_finished(now);
    }

    /// Takes the state of the PGM source, and returns what the receivers want of this source, such
    /// as its pace. Call it once a turn.
    pub fn observe(&mut self, now: Instant, source: &SourceState) -> Steering {
        self.clock.contract.tell_time(now);
        let control = self.rate.as_mut();
        let pace = control.map(|control| control.steer(now, source.is_rate_limited));
        let hold = self.hold(source.lead);
        let wanted = Steering {
            pace,
            count: self.announced_count(),
            limiting: self.rate_limit().map(|limit| limit.slot),
            hold,
            round_trip: self.round_trip,
        };
        let ahead = hold.map_or(0, |hold| (source.lead + 1).saturating_sub(hold));
        self.stream_waits(now, source.lead, ahead >= source.window_packets / 2);
        wanted
    }

    /// Returns the receiver that sets the rate, and why; `None` while none does.
    #[must_use]
    pub fn rate_limit(&self) -> Option<RateLimit> {
        self.rate.as_ref().and_then(RateControl::limit)
    }

    /// Makes the rate control forget receivers that no longer follow the packet stream: they must
    /// not affect its rate.
    fn forget_unfollowed(&mut self) {
        let Some(control) = &mut self.rate else {
            return;
        };
        for (slot, member) in self.members.iter().enumerate() {
            if !member.is_followed() {
                control.forget(u32::try_from(slot).unwrap_or(u32::MAX));
            }
        }
    }

    /// Looks whether content that was being fetched is there now. Call it once a turn.
    pub fn look_for_content(&mut self, now: Instant) {
        if !self.window.take_awaits() {
            return;
        }
        self.filling.look_again();
        if self.hashes_now() {
            self.hash(now);
        }
    }

    /// Returns true when content is to be hashed that no receiver is sent, and that need not be
    /// waited for.
    fn hashes_now(&self) -> bool {
        self.stage == Stage::Hashing && !self.window.awaits() && !self.hashes_on_the_way()
    }

    /// Returns the next thing to do on a control connection.
    pub fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.top_up();
        self.listener.links.poll()
    }

    /// Notes that the back end took `taken` bytes of the last [`LinkCommand::Send`].
    pub fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.listener.links.sent(link, taken);
        if let Some(slot) = self.roll.by_link.get(&link).filter(|_| taken > 0) {
            self.filling.has_room(*slot);
        }
    }

    /// Notes the number that the back end gave to the connection that was opened with `key`.
    pub fn link_opened(&mut self, key: u32, link: LinkId) {
        self.listener.links.opened();
        self.listener.links.insert(link);
        if !self.invitations.link_opened(key as usize, link) {
            self.listener.links.abort(link);
        }
    }

    /// Returns the next event.
    pub fn pop_event(&mut self) -> Option<TransferSenderEvent> {
        self.events.pop()
    }

    /// Says when [`TransferSender::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        match self.stage {
            Stage::Closed => None,
            _ if self.hashes_now() => Some(Instant::ZERO),
            // A deadline that has passed without effect is checked again at the next tick.
            _ => {
                let deadline = self.stage_deadline().filter(|&at| at > self.clock.now);
                let own = earliest(Some(self.clock.tick_at), deadline);
                earliest(own, self.invitations.due())
            }
        }
    }

    /// Says when the stage ends if nothing ends it earlier.
    fn stage_deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Joining => Some(self.joining_until()),
            Stage::Answering { deadline } | Stage::Closing { deadline } => Some(deadline),
            _ => None,
        }
    }

    /// Returns true once the outcome is final.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        matches!(self.stage, Stage::Closing { .. } | Stage::Closed)
    }

    /// Returns true once nothing is left to do: the outcome is final, and the connections are
    /// closed or their time to close is over.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closed)
    }

    /// Returns the outcome so far.
    #[must_use]
    pub fn outcome(&self) -> TransferOutcome {
        let reports = self.members.iter().enumerate().map(|(slot, member)| {
            let sent = self.counters.content_block_bytes;
            member.report(slot, sent, self.clock.began_at)
        });
        let joined = self
            .members
            .iter()
            .filter(|member| member.is_expected)
            .count();
        let names = self.config.expected_names.iter();
        let missing_names = names.filter(|name| !self.roll.by_name.contains_key(name.as_str()));
        TransferOutcome {
            manifest: self.manifest.id(),
            root: self.holdings.last().map(|holding| holding.root),
            content_bytes: self.delivered_bytes(),
            unsent: self.unsent.clone(),
            receivers: reports.collect(),
            missing_names: missing_names.cloned().collect(),
            unreached: (self.invitations.unreached())
                .map(|it| (it.peer, it.text.clone()))
                .collect(),
            multicast_bytes: self.counters.content_block_bytes,
            unicast_bytes: self.counters.content_fill_bytes,
            slowest: self.slowest(),
            missing: self
                .config
                .expected_count()
                .max(u32::from(self.settle_time().is_some()))
                .saturating_sub(u32::try_from(joined).unwrap_or(u32::MAX)),
            failure: self.failure.clone(),
            is_final: self.is_finished(),
        }
    }

    /// Returns the manifest.
    #[must_use]
    pub const fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Returns each path of each file with the file's root, in the manifest's order and without
    /// withdrawn files; `None` until all content is hashed.
    pub fn file_roots(&self) -> Option<impl Iterator<Item = (&[u8], Hash)>> {
        let hashes = self.window.hashes()?;
        Some(self.manifest.file_roots(hashes))
    }

    /// Returns the files that were withdrawn so far.
    #[must_use]
    pub fn unsent(&self) -> &[Unsent] {
        &self.unsent
    }

    /// Returns true when an admitted receiver last came from this host: its control connection has
    /// shown that the receiver has this address.
    #[must_use]
    pub fn has_host(&self, host: IpAddr) -> bool {
        self.hosts.contains(host)
    }

    /// Returns how many receivers are connected and neither done nor failed.
    #[must_use]
    pub fn receiver_count(&self) -> u32 {
        let active = self
            .members
            .iter()
            .filter(|member| member.is_active())
            .count();
        u32::try_from(active).unwrap_or(u32::MAX)
    }

    /// Returns the number of receivers that the packet stream's mark announces:
    /// [`TransferSender::receiver_count`], or the number of expected receivers if that is higher.
    #[must_use]
    pub fn announced_count(&self) -> u32 {
        self.receiver_count().max(self.config.expected_count())
    }

    /// Returns the longest round trip of the connected receivers; `None` while none is known. The
    /// round trip of a receiver is the shortest of its recent samples. Any report can raise the
    /// result, but only ticks, 100 ms apart, lower it.
    #[must_use]
    pub const fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Returns the source of the content.
    #[must_use]
    pub const fn content(&self) -> &C {
        self.window.content()
    }

    #[cfg(test)]
    pub(crate) const fn content_mut(&mut self) -> &mut C {
        self.window.content_mut()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &TransferSenderCounters {
        &self.counters
    }

    fn event(&mut self, event: TransferSenderEvent) {
        self.counters.events_lost += self.events.push(event);
    }
}
