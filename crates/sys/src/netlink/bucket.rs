//! Slows an interface down: replaces its queue by a token bucket filter (`tbf`).

use super::{NetlinkError, Request, Rtnetlink, socket::flag};

/// The limits of what an interface may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// The rate in bytes a second, headers of the link layer included; below 4 GiB.
    pub bytes_per_s: u32,
    /// Number of bytes that may leave at once after an idle time: at least one packet. The kernel
    /// cuts a GSO packet that is longer than this into its segments.
    pub burst_bytes: u32,
    /// Number of bytes that may wait; packets that do not fit are dropped.
    pub queue_bytes: u32,
}

impl Rtnetlink {
    /// Makes the link send through `bucket`, which replaces the link's queue.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or when the kernel lacks `sch_tbf`.
    pub fn set_token_bucket(
        &mut self,
        index: u32,
        bucket: &TokenBucket,
    ) -> Result<(), NetlinkError> {
        let flags = flag(libc::NLM_F_CREATE | libc::NLM_F_REPLACE);
        let mut request = Request::new(libc::RTM_NEWQDISC, flags);
        request
            .fixed(&header(index))
            .text(libc::TCA_KIND, "tbf")
            .nested(libc::TCA_OPTIONS, |options| {
                options
                    .attribute(TBF_PARMS, &parameters(bucket))
                    .number(TBF_BURST, bucket.burst_bytes);
            });
        self.change(request, || {
            format!("limit interface {index} to {} B/s", bucket.bytes_per_s)
        })
    }
}

/// Makes a `struct tcmsg`: family u8, padding, index i32, handle u32, parent u32, info u32.
fn header(index: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&HANDLE.to_ne_bytes());
    bytes[12..16].copy_from_slice(&ROOT.to_ne_bytes());
    bytes
}

/// Makes a `struct tc_tbf_qopt`: rate and peak rate (`struct tc_ratespec`, 12 bytes each: cell,
/// link layer, overhead, alignment, least size, rate u32), limit u32, buffer u32, largest packet
/// u32.
fn parameters(bucket: &TokenBucket) -> [u8; 36] {
    let mut bytes = [0; 36];
    bytes[1] = LINK_LAYER_ETHERNET;
    bytes[8..12].copy_from_slice(&bucket.bytes_per_s.to_ne_bytes());
    bytes[24..28].copy_from_slice(&bucket.queue_bytes.to_ne_bytes());
    bytes
}

/// `TCA_TBF_PARMS` and `TCA_TBF_BURST` of `linux/pkt_sched.h`.
const TBF_PARMS: u16 = 1;
const TBF_BURST: u16 = 6;
/// The kernel's number for Ethernet as the link layer. A request that names the link layer needs
/// no table of transmission times.
const LINK_LAYER_ETHERNET: u8 = 1;
const HANDLE: u32 = 1 << 16;
/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;
