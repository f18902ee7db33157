//! Takes data that fills several packets and is of use only as a whole.

use wire::pgm::Data;

use super::{Full, Source};

impl Source {
    /// Takes `count` payloads, all of them or none: each has `len` bytes, except the last, which
    /// has `last_len`. `fill` gets the index of each payload and writes the payload into the log,
    /// from where it is sent. Returns the position of the first packet.
    ///
    /// **Cost**: one pass over each payload, for the checksum; no allocation, no copy.
    ///
    /// # Errors
    /// [`Full::Closed`] when the source was closed. [`Full::Window`] while the backlog
    /// (`tx_backlog_bytes`) or the window has no room for all payloads.
    ///
    /// [`Full::TooLong`] when a payload does not fit a packet; `max` is then the longest that does.
    /// [`Full::TooLong`], too, when all payloads together exceed the whole backlog; `max` is then
    /// the backlog in bytes, headers included. With `pack` always [`Full::TooLong`], because each
    /// packet is then a row of messages.
    pub fn offer_pieces(
        &mut self,
        len: usize,
        (count, last_len): (usize, usize),
        mut fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<u64, Full> {
        if self.config.pack() || len.max(last_len) > self.limits.tsdu {
            let max = self.limits.tsdu;
            return Err(Full::TooLong { max });
        }
        self.check_room()?;
        let bytes = (len + Data::HEAD_LEN) * count.saturating_sub(1) + last_len + Data::HEAD_LEN;
        if bytes > self.limits.backlog_bytes || count as u64 > self.limits.backlog_sqns {
            let max = self.limits.backlog_bytes;
            return Err(Full::TooLong { max });
        }
        let waiting = self.log.lead() - self.log.unsent() + count as u64;
        let is_full = self.log.unsent_bytes() + bytes > self.limits.backlog_bytes
            || waiting > self.limits.backlog_sqns;
        if is_full {
            return Err(self.refuse());
        }
        let (first, taken) = (self.log.lead(), self.counters.taken);
        let checkpoint = self.log.checkpoint();
        for number in 0..count {
            let len = if number + 1 == count { last_len } else { len };
            let Err(full) = self.offer_piece(len, |room| fill(number, room)) else {
                continue;
            };
            self.log.rollback(checkpoint);
            self.counters.taken = taken;
            return Err(full);
        }
        Ok(first)
    }

    fn offer_piece(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        let mut slot = self.reserve_in_log(len)?;
        fill(slot.payload_mut());
        slot.commit();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use base::{Budget, Instant, Outcome, PathId};
    use wire::pgm::{Gsi, Tsi};

    use super::*;
    use crate::{Config, SourceSetup};

    fn source() -> Source {
        let config = Config::builder()
            .tx_window_bytes(64_000)
            .tx_backlog_bytes(16_000);
        let setup = SourceSetup {
            tsi: Tsi {
                gsi: Gsi([1; 6]),
                port: 4,
            },
            destination_port: 7,
            group: ([239, 1, 1, 1], 7).into(),
            nla: [10, 0, 0, 1].into(),
            path: PathId(0),
            first_sqn: 100,
            seed: 1,
            mark: None,
        };
        Source::new(config.build().unwrap(), setup, Instant::ZERO)
    }

    fn send_all(source: &mut Source) -> Vec<usize> {
        let budget = Budget {
            bytes: 64_000,
            datagrams: 64,
        };
        let mut sent = Vec::new();
        while let Some(run) = source.poll_run(Instant::ZERO, budget) {
            sent.extend(run.datagrams().map(<[u8]>::len));
            let datagrams = run.datagram_count();
            source.run_done(Instant::ZERO, Outcome::Sent { datagrams });
        }
        sent
    }

    #[test]
    fn all_pieces_are_taken_or_none() {
        let mut source = source();
        send_all(&mut source);
        let mut numbers = Vec::new();
        let mut offer = |source: &mut Source| {
            source.offer_pieces(1000, (10, 300), |number, room| {
                numbers.push((number, room.len()));
                room.fill(number as u8);
            })
        };
        let first = offer(&mut source).unwrap();
        let lead = source.lead();
        assert_eq!(lead, first + 10);
        assert_eq!(offer(&mut source), Err(Full::Window));
        assert_eq!(source.lead(), lead, "nothing of the second was taken");
        let lens = send_all(&mut source);
        let head = Data::HEAD_LEN;
        assert_eq!(lens, [&[1000 + head; 9][..], &[300 + head]].concat());
        offer(&mut source).unwrap();
        assert_eq!(numbers[..2], [(0, 1000), (1, 1000)]);
        assert_eq!((numbers.len(), numbers[9]), (20, (9, 300)));
    }

    #[test]
    fn what_never_fits_is_too_long() {
        let mut source = source();
        let mut offer = |len, count| source.offer_pieces(len, (count, len), |_, _| {});
        assert!(matches!(
            offer(1000, 17),
            Err(Full::TooLong { max: 16_000 })
        ));
        assert!(matches!(offer(1500, 2), Err(Full::TooLong { .. })));
        assert!(offer(1000, 15).is_ok());
    }

    #[test]
    fn a_short_last_piece_counts_as_long_as_it_is() {
        let mut source = source();
        assert!(source.offer_pieces(1400, (12, 20), |_, _| {}).is_ok());
    }
}
