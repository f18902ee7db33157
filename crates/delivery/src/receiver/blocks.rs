//! How the bytes of a manifest get into the store: the receiver takes blocks of the objects, has
//! slabs hashed and compared, and starts the commit.
//!
//! **Spec**: `docs/src/protocol.md` sections 3 and 7.

use std::sync::Arc;

use base::Instant;
use wire::object::{Done, DoneNumbers, ErrorCode, ManifestHeader, Message, ObjectId};

use super::{
    BlockVerdict, Delivery, Step, TransferReceiver, TransferReceiverEvent,
    objects::{Compared, Contents},
};
use crate::{
    Manifest, ManifestError, ManifestId, RangeSet, Store,
    proof::{Holding, Occasion},
};

/// The way by which a block came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In packets of the stream. Without a key, anybody can forge these.
    Packets,
    /// Over the control connection.
    Connection,
}

impl<S: Store> TransferReceiver<S> {
    /// Keeps a piece of an object that came by `way`.
    pub(super) fn take(
        &mut self,
        now: Instant,
        way: Way,
        object: ObjectId,
        offset: u64,
        data: &[u8],
    ) -> BlockVerdict {
        match object {
            ObjectId::CONTENT => self.take_content(now, way, offset, data),
            ObjectId::MANIFEST => {
                let Some(manifest) = &mut self.manifest else {
                    return self.unplaced();
                };
                if way == Way::Packets && manifest.was_wrong() {
                    return self.doubtful();
                }
                let put = manifest.put(offset, data);
                let is_whole = manifest.is_whole();
                if put == Some(true) && is_whole {
                    self.manifest_whole(now);
                }
                self.verdict(put)
            }
            ObjectId::SEALS => {
                // Once the commit has begun, seals are not taken: they may differ from those that
                // the content was compared with.
                let (Some(contents), Step::Preparing | Step::Receiving) =
                    (&mut self.contents, self.step)
                else {
                    return self.unplaced();
                };
                if way == Way::Packets && contents.seals.was_wrong() {
                    return self.doubtful();
                }
                let put = contents.seals.put(offset, data);
                if put == Some(true) {
                    self.check_seals(now);
                }
                self.verdict(put)
            }
            _ => self.verdict(None),
        }
    }

    #[inline]
    fn take_content(&mut self, now: Instant, way: Way, offset: u64, data: &[u8]) -> BlockVerdict {
        let (Some(contents), Some(store), Step::Receiving) =
            (&mut self.contents, &mut self.store, self.step)
        else {
            return self.unplaced();
        };
        let end = offset.checked_add(data.len() as u64);
        let Some(end) = end.filter(|&end| end <= contents.manifest.content_bytes()) else {
            return self.verdict(None);
        };
        if way == Way::Packets && contents.was_wrong(offset..end) {
            return self.doubtful();
        }
        // Bytes that are held already may be verified, so only the missing ones are written.
        let (mut at, mut rest, mut is_new) = (offset, data, false);
        loop {
            let gap = contents.held.missing_in(at..end).next();
            let Some(gap) = gap else {
                break;
            };
            let behind = rest.split_at((gap.start - at) as usize).1;
            let (piece, behind) = behind.split_at((gap.end - gap.start) as usize);
            if !store.write(gap.start, piece) {
                self.counters.blocks_store_full += 1;
                return BlockVerdict::Refused;
            }
            at = gap.end;
            if !contents.note(gap) {
                self.counters.blocks_unnoted += 1;
                return BlockVerdict::Refused;
            }
            (rest, is_new) = (behind, true);
        }
        if !is_new {
            return self.verdict(Some(false));
        }
        self.began.content_at.get_or_insert(now);
        if contents.next_unasked().is_some() {
            self.handle_store(now);
        }
        BlockVerdict::Taken
    }

    const fn verdict(&mut self, put: Option<bool>) -> BlockVerdict {
        match put {
            Some(true) => BlockVerdict::Taken,
            Some(false) => {
                self.counters.blocks_duplicate += 1;
                BlockVerdict::Duplicate
            }
            None => {
                self.counters.blocks_refused += 1;
                BlockVerdict::Refused
            }
        }
    }

    /// Counts a block of the packet stream that is refused because earlier bytes for the same part
    /// of the object were wrong. Whoever forged packets can do so again, so this part is taken only
    /// from the connection.
    const fn doubtful(&mut self) -> BlockVerdict {
        self.counters.blocks_doubtful += 1;
        BlockVerdict::Refused
    }

    /// Counts a block of an object that this receiver cannot take yet, or does not take any more.
    const fn unplaced(&mut self) -> BlockVerdict {
        if matches!(
            self.step,
            Step::Joining | Step::Offered | Step::Manifest | Step::Preparing
        ) {
            self.counters.blocks_early += 1;
        } else {
            self.counters.blocks_duplicate += 1;
        }
        BlockVerdict::Refused
    }

    fn manifest_whole(&mut self, now: Instant) {
        let (Some(manifest), Some(welcome)) = (&mut self.manifest, &self.welcome) else {
            return;
        };
        if Manifest::id_of(manifest.bytes()) != ManifestId(welcome.manifest) {
            // The manifest contains forged blocks; the right ones come over the connection.
            manifest.reject();
            self.counters.manifests_bad += 1;
            return;
        }
        let bytes = manifest.take();
        self.manifest = None;
        match Manifest::from_bytes(bytes, &self.config.limits) {
            Ok(manifest) => self.manifest_known(now, Arc::new(manifest)),
            Err(error) => self.manifest_refused(now, &error),
        }
    }

    fn manifest_known(&mut self, now: Instant, manifest: Arc<Manifest>) {
        self.event(TransferReceiverEvent::ManifestKnown {
            entries: manifest.entry_count(),
            bytes: manifest.content_bytes(),
            is_incomplete: manifest.has_flag(ManifestHeader::INCOMPLETE),
        });
        self.contents = Some(Contents::new(Arc::clone(&manifest), self.config.ranges_max));
        self.step = Step::Preparing;
        if let Some(store) = &mut self.store {
            store.prepare(&manifest);
        }
        self.handle_store(now);
    }

    fn manifest_refused(&mut self, now: Instant, error: &ManifestError) {
        self.fail(now, ErrorCode::ManifestRefused, &error.to_string());
    }

    pub(super) fn prepared(&mut self, now: Instant, held: &RangeSet) {
        let (Some(contents), Step::Preparing) = (&mut self.contents, self.step) else {
            return;
        };
        self.step = Step::Receiving;
        let len = contents.manifest.content_bytes();
        for range in held.iter().filter(|range| range.end <= len) {
            contents.note(range);
        }
        self.try_answer(now);
    }

    /// Asks the store to hash complete slabs, as many as the store accepts.
    pub(super) fn ask_store(&mut self) {
        if self.step != Step::Receiving {
            return;
        }
        let (Some(contents), Some(store)) = (&mut self.contents, &mut self.store) else {
            return;
        };
        while let Some(slab) = contents.next_unasked() {
            if !store.hash_slab(slab) {
                return;
            }
            contents.asked();
        }
    }

    pub(super) fn check_seals(&mut self, now: Instant) {
        let Some(contents) = &mut self.contents else {
            return;
        };
        match contents.check_seals() {
            Some(true) => {
                for slab in 0..contents.manifest.slab_count() {
                    let compared = self.contents.as_mut().map(|c| c.compare(slab));
                    self.compared(now, slab, compared.unwrap_or(Compared::Open));
                }
                self.check_verified(now);
            }
            Some(false) => self.counters.seals_bad += 1,
            None => {}
        }
    }

    pub(super) fn compared(&mut self, now: Instant, slab: u32, compared: Compared) {
        let Compared::Bad(times) = compared else {
            return;
        };
        self.counters.slabs_bad += 1;
        let Some(manifest) = self.manifest() else {
            return;
        };
        let file = &manifest.files()[manifest.slab(slab).file as usize];
        let path = manifest.path_of(file).escape_ascii().to_string();
        // The first wrong hash may come from forged packets of the stream, so it does not count.
        if u32::from(times) > self.config.slab_attempts_max {
            let text = format!(
                "{path}: the hash of a slab was wrong {times} times; check disk and memory of both \
                 hosts"
            );
            return self.fail(now, ErrorCode::HashMismatch, &text);
        }
        self.event(TransferReceiverEvent::SlabBad { slab, path });
    }

    /// Begins the commit when every slab is verified. When the sender was told that all is
    /// complete, and slabs then turned out wrong, requests these again.
    pub(super) fn check_verified(&mut self, now: Instant) {
        let (Some(contents), Step::Receiving) = (&mut self.contents, self.step) else {
            return;
        };
        contents.note_withdrawn();
        if contents.is_verified() {
            self.step = Step::Committing;
            let withdrawn: Vec<usize> = contents
                .manifest
                .withdrawn(contents.seals.bytes())
                .collect();
            let paths_of = |&index: &usize| contents.manifest.paths_of(index).map(<[u8]>::to_vec);
            let paths: Vec<_> = withdrawn.iter().flat_map(paths_of).collect();
            for &file in &withdrawn {
                contents.hashes.withdraw(&contents.manifest, file);
            }
            if let Some(store) = &mut self.store {
                store.commit(&withdrawn);
            }
            if !paths.is_empty() {
                self.event(TransferReceiverEvent::Withdrawn { paths });
            }
            self.handle_store(now);
        } else if self.answers.is_complete_told && contents.is_quiet() && !contents.is_whole() {
            self.answer_again(now);
        }
    }

    pub(super) fn committed(&mut self, now: Instant) {
        let (Some(contents), Step::Committing) = (&self.contents, self.step) else {
            return;
        };
        let holding = Holding::of(&contents.manifest, &contents.hashes);
        let streams = self.stream.totals();
        let time = now.since(self.began.content_at.unwrap_or(self.began.joined_at));
        let numbers = DoneNumbers {
            bytes: holding.bytes,
            lost: streams.missed,
            repairs_asked: streams.repairs_asked,
            repairs_got: streams.repairs_got,
            time_ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        };
        self.step = Step::Delivered;
        self.delivery = Some(Delivery { holding, numbers });
        let sealer = self.sealer.expect("a sender has named the manifest");
        self.event(TransferReceiverEvent::Delivered {
            root: holding.root,
            numbers,
            sealer,
        });
        if self.is_given_up() {
            // No sender waits for the proof.
            return self.over(now);
        }
        self.look_on(now);
        // The sender must get HAVE before the proof. Without content, everything may be in place
        // before HAVE is sent; the proof is then sent after it.
        if self.answers.is_have_told {
            self.tell_done(now);
        }
    }

    /// Gives the sender the proof, if everything is in place.
    pub(super) fn tell_done(&mut self, now: Instant) {
        if let Some(done) = self.proof() {
            self.tell(now, &Message::Done(done));
        }
    }

    /// Returns the proof for the connection on which the sender last admitted this receiver, once
    /// everything is in place.
    #[must_use]
    pub fn proof(&self) -> Option<Done> {
        let (delivery, welcome) = (self.delivery.as_ref()?, self.welcome.as_ref()?);
        let occasion = Occasion {
            nonce: welcome.nonce,
            session_id: welcome.session_id,
            instance: self.config.instance,
            name: self.caller.name(),
        };
        Some(Done {
            root: delivery.holding.root,
            proof: delivery.holding.prove(&occasion),
            numbers: delivery.numbers,
        })
    }
}
