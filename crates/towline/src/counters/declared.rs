//! Every set of counters that a session may publish.

use base::{CounterInfo, CounterSet, DropCounters};
use delivery::{
    AudienceCounters, ForwarderCounters, ObjectReceiverCounters, ReporterCounters,
    TransferReceiverCounters, TransferSenderCounters,
    frames::{ArbiterCounters, FrameReceiverCounters, FrameSenderCounters},
};
use driver::DriverCounters;
use net::{UdpCounters, intercept::InterceptCounters};
use pgm::{ElementCounters, ReceiverCounters, SourceCounters};
use protection::ProtectionCounters;

/// Returns the name and the counters of each set that a process may show, in the order of the
/// reference pages.
#[must_use]
pub fn declared() -> Vec<(&'static str, &'static [CounterInfo])> {
    const fn of<S: CounterSet>() -> (&'static str, &'static [CounterInfo]) {
        (S::NAME, S::DECLARED)
    }
    vec![
        of::<SourceCounters>(),
        of::<ReceiverCounters>(),
        of::<ElementCounters>(),
        of::<ForwarderCounters>(),
        of::<AudienceCounters>(),
        of::<ReporterCounters>(),
        of::<TransferSenderCounters>(),
        of::<TransferReceiverCounters>(),
        of::<ObjectReceiverCounters>(),
        of::<FrameSenderCounters>(),
        of::<FrameReceiverCounters>(),
        of::<ArbiterCounters>(),
        of::<DriverCounters>(),
        of::<ProtectionCounters>(),
        of::<UdpCounters>(),
        of::<DropCounters>(),
        of::<InterceptCounters>(),
    ]
}
