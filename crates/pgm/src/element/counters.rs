//! The counters of a network element.

base::counters! {
    /// The counters of what a network element has seen and done.
    ///
    /// `seen = handled + all drops`, in packets.
    pub struct ElementCounters: "element" {
        seen_packets: Packets, "packets handed in";
        handled_packets: Packets, "packets understood";
        spms_forwarded: Packets, "SPMs sent on, one for each way";
        odata_forwarded: Packets, "ODATA sent on, one for each way";
        rdata_forwarded: Packets, "repairs sent on, one for each way that asked";
        rdata_unwanted: Packets, "repairs that nobody behind this element asked for";
        rdata_kept: Packets, "repairs of what this element keeps, without asking the source";
        rdata_beyond_share: Packets,
            "packets asked for upstream although kept: repairs would be more than the data";
        naks: Packets, "NAKs understood";
        naks_forwarded: Packets, "NAKs sent upstream";
        naks_repeated: Packets, "NAKs sent upstream once more, as nobody confirmed them";
        naks_eliminated: Packets, "NAKs that said nothing new";
        ncfs: Packets, "NAK confirmations sent";
        ncfs_heard: Packets, "NAK confirmations of the neighbour upstream";
        spmrs_forwarded: Packets, "SPM requests sent upstream";
        polls_heard: Packets, "polls of the neighbour upstream";
        poll_replies: Packets, "replies to polls sent upstream";
        overflowed: Packets, "packets not sent, as too much waited for their way";
        sessions_found: Events, "sources heard for the first time";
        sessions_restarted: Events, "sources that began anew with the TSI that they had before";
        sessions_evicted: Events, "sources forgotten to make room for others: no data came from \
            them, or their host has more than its share";
        sessions_expired: Events, "sources forgotten, as nothing was heard from them for too long";
    }
}
