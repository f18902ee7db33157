//! Combines the kernel's stamps of a message: they show where the time of its round trip went.

use std::{collections::VecDeque, os::fd::BorrowedFd};

use measure::{Split, StampCounts};
use sys::stamp::{Report, Stage, Stamps, receive_report};

/// The stamped messages that still wait for some of their stamps.
#[derive(Debug, Default)]
pub(super) struct Stamping {
    pending: VecDeque<Pending>,
    /// How many messages were sent with a stamp. This is also the kernel's number for the next one.
    count: u32,
    /// How many messages of this run the kernel or the device stamped.
    pub(super) counts: StampCounts,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    number: u32,
    sequence: u64,
    sent: Clocks,
    scheduled_ns: Option<u64>,
    /// When the message left: by the device's clock if the device stamps, otherwise by the
    /// kernel's.
    left: Option<Stamps>,
    /// The echo's stamps, and when the application received it.
    echoed: Option<(Stamps, Clocks)>,
}

/// Both clocks at one moment. The kernel stamps by the wall clock, which somebody may set while a
/// message is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    monotonic_ns: u64,
    wall_ns: u64,
}

impl Clocks {
    pub(super) fn now() -> Self {
        Self {
            monotonic_ns: sys::clock::monotonic().as_nanos(),
            wall_ns: sys::clock::wall_nanos(),
        }
    }

    /// Returns how far the wall clock moved against the monotonic clock since `earlier`.
    const fn step_ns(&self, earlier: &Self) -> u64 {
        let wall = self.wall_ns.wrapping_sub(earlier.wall_ns);
        wall.abs_diff(self.monotonic_ns.wrapping_sub(earlier.monotonic_ns))
    }
}

/// The result for a stamped message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Whole(Split),
    /// The wall clock was set by this much while the message was under way.
    ClockStep(u64),
}

impl Stamping {
    /// Forgets the previous run. The count goes on, because the kernel's does.
    pub(super) fn restart(&mut self) {
        self.pending.clear();
        self.counts = StampCounts::default();
    }

    /// Notes a message that was sent with a stamp.
    pub(super) fn sent(&mut self, sequence: u64, sent: Clocks) {
        if self.pending.len() >= PENDING_MAX {
            self.pending.pop_front();
            self.counts.incomplete += 1;
        }
        self.pending.push_back(Pending {
            number: self.count,
            sequence,
            sent,
            scheduled_ns: None,
            left: None,
            echoed: None,
        });
        self.count = self.count.wrapping_add(1);
    }

    /// Notes an echo that the kernel stamped.
    pub(super) fn echoed(&mut self, sequence: u64, stamps: Stamps, got: Clocks) {
        let mut pending = self.pending.iter_mut();
        if let Some(one) = pending.find(|one| one.sequence == sequence) {
            one.echoed = Some((stamps, got));
        }
    }

    /// Reads the stamps that wait; calls `found` for each message that then has all its stamps.
    pub(super) fn collect(&mut self, fd: BorrowedFd<'_>, mut found: impl FnMut(Outcome)) {
        // Only our own stamps and ICMP errors ever wait in the error queue.
        while let Ok(Some(report)) = receive_report(fd) {
            if let Report::Stamp {
                number,
                stage,
                stamps,
            } = report
            {
                self.stamped(number, stage, stamps);
            }
        }
        while let Some(outcome) = self.take() {
            match outcome {
                Some(outcome) => found(outcome),
                None => self.counts.incomplete += 1,
            }
        }
    }

    /// Returns true while a message waits for stamps.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    fn stamped(&mut self, number: u32, stage: Stage, stamps: Stamps) {
        let mut pending = self.pending.iter_mut();
        if let Some(one) = pending.find(|one| one.number == number) {
            match stage {
                Stage::Scheduled => one.scheduled_ns = stamps.software_ns,
                Stage::Sent => one.left = Some(stamps),
                Stage::Other(_) => {}
            }
        }
    }

    /// Takes out the first message that has all its stamps. The inner value is `None` when the
    /// stamps make no sense or are not exact enough.
    fn take(&mut self) -> Option<Option<Outcome>> {
        let whole = |one: &Pending| Some((one.scheduled_ns?, one.left?, one.echoed?));
        let found = self.pending.iter().position(|one| whole(one).is_some())?;
        let one = self.pending.remove(found)?;
        let (scheduled, left, (came, got)) = whole(&one)?;
        let step_ns = got.step_ns(&one.sent);
        if step_ns > CLOCK_STEP_NS {
            return Some(Some(Outcome::ClockStep(step_ns)));
        }
        let split = || {
            let kernel = came.software_ns?;
            let (link_ns, is_hardware) = link_ns(&left, &came)?;
            let split = Split {
                sequence: one.sequence,
                queue_ns: scheduled.checked_sub(one.sent.wall_ns)?,
                // With the device's stamps, this includes the way from the device back to this
                // host's kernel.
                device_ns: kernel.checked_sub(scheduled)?.checked_sub(link_ns)?,
                link_ns,
                wake_ns: got.wall_ns.checked_sub(kernel)?,
            };
            Some((split, is_hardware))
        };
        // When the thread was interrupted between its readings of the two clocks, the split is not
        // exact.
        let is_exact = step_ns <= CLOCK_ERROR_NS;
        let found = split().filter(|_| is_exact);
        match found {
            Some((_, true)) => self.counts.hardware += 1,
            Some((_, false)) => self.counts.software += 1,
            None => {}
        }
        Some(found.map(|(split, _)| Outcome::Whole(split)))
    }
}

/// Returns the time on the link, and whether the device measured it. If the device stamps both
/// ways, the time is from device to device, by its clock. Otherwise it is from device to kernel, by
/// the kernel's clock.
fn link_ns(left: &Stamps, came: &Stamps) -> Option<(u64, bool)> {
    let between = |from: Option<u64>, to: Option<u64>| to?.checked_sub(from?);
    let by_device = between(left.hardware_ns, came.hardware_ns).map(|ns| (ns, true));
    by_device.or_else(|| between(left.software_ns, came.software_ns).map(|ns| (ns, false)))
}

/// The most nanoseconds by which the clocks drift apart while a message is under way, unless a
/// clock was set.
const CLOCK_STEP_NS: u64 = 1_000_000;
/// The largest error of a split in nanoseconds; splits with a larger one are left out.
const CLOCK_ERROR_NS: u64 = 5_000;
const PENDING_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(monotonic_ns: u64, wall_ns: u64) -> Clocks {
        Clocks {
            monotonic_ns,
            wall_ns,
        }
    }

    /// One message with all its stamps, received when the clocks showed `got`.
    fn outcome(got: Clocks) -> Option<Option<Outcome>> {
        let mut stamping = Stamping::default();
        stamping.sent(77, at(1_000, 50_000));
        stamping.stamped(0, Stage::Scheduled, by_kernel(51_000));
        stamping.stamped(0, Stage::Sent, by_kernel(53_000));
        assert_eq!(stamping.take(), None);
        stamping.echoed(77, by_kernel(60_000), got);
        stamping.take()
    }

    fn by_kernel(ns: u64) -> Stamps {
        Stamps {
            software_ns: Some(ns),
            hardware_ns: None,
        }
    }

    #[test]
    fn a_device_that_stamps_both_ways_measures_the_link_by_its_own_clock() {
        let found = |came_hardware_ns| {
            let mut stamping = Stamping::default();
            stamping.sent(77, at(1_000, 50_000));
            stamping.stamped(0, Stage::Scheduled, by_kernel(51_000));
            // The device's stamp has another epoch, and comes without the kernel's, which it
            // suppresses.
            let left = Stamps {
                software_ns: None,
                hardware_ns: Some(7),
            };
            stamping.stamped(0, Stage::Sent, left);
            let came = Stamps {
                hardware_ns: came_hardware_ns,
                ..by_kernel(60_000)
            };
            stamping.echoed(77, came, at(15_000, 64_000));
            let found = stamping.take();
            (found, stamping.counts.hardware)
        };
        let split = Split {
            sequence: 77,
            queue_ns: 1_000,
            device_ns: 4_000,
            link_ns: 5_000,
            wake_ns: 4_000,
        };
        assert_eq!(found(Some(5_007)), (Some(Some(Outcome::Whole(split))), 1));
        // A stamp for one way only says nothing.
        assert_eq!(found(None), (Some(None), 0));
    }

    #[test]
    fn five_points_make_four_parts() {
        let split = Split {
            sequence: 77,
            queue_ns: 1_000,
            device_ns: 2_000,
            link_ns: 7_000,
            wake_ns: 4_000,
        };
        assert_eq!(
            outcome(at(15_000, 64_000)),
            Some(Some(Outcome::Whole(split)))
        );
        assert_eq!(split.send_path_ns(), 3_000);
    }

    #[test]
    fn a_clock_that_was_set_spoils_the_message_and_is_told() {
        let step = Outcome::ClockStep(2_000_000);
        assert_eq!(outcome(at(15_000, 2_064_000)), Some(Some(step)));
        assert_eq!(outcome(at(15_000, 84_000)), Some(None));
        assert_eq!(outcome(at(15_000, 55_000)), Some(None));
    }
}
