//! The counters of a receiver.

base::counters! {
    /// The counters of what a receiver has seen and done, over all its sessions.
    ///
    /// `seen = payload + held + control + all drops`, in packets.
    pub struct ReceiverCounters: "receiver" {
        seen_packets: Packets, "packets handed in";
        payload_packets: Packets, "data packets given out without a copy";
        payload_bytes: Bytes, "payload given out without a copy";
        held_packets: Packets, "data packets copied to wait for their turn";
        control_packets: Packets, "control packets understood";
        odata_packets: Packets, "ODATA accepted";
        rdata_packets: Packets, "RDATA accepted";
        spm_packets: Packets, "SPMs accepted";
        ncf_packets: Packets, "NAK confirmations heard";
        nak_packets_heard: Packets, "NAKs of other receivers heard";
        spmr_packets_heard: Packets, "SPM requests of other receivers heard";
        parity_packets: Packets, "parity packets, NAKs and NCFs seen, of use or not";
        parity_kept: Packets, "parity packets kept to recover others";
        parity_naks: Packets, "NAKs made that ask for parity";
        parity_asked: Packets, "parity packets asked for in NAKs, repeats included";
        recovered_sqns: Sqns, "lost packets recovered with parity";
        barred_groups: Events, "groups whose parity contradicted their packets";
        held_messages: Messages, "messages given out after they were held or put together";
        held_bytes: Bytes, "bytes of messages given out after they were held or put together";
        skipped_fragments: Packets, "pieces of a message that had begun before this receiver";
        broken_messages: Messages, "fragmented messages given up: a piece lost or contradictory";
        missed_sqns: Sqns, "sequence numbers noticed as missing";
        lost_events: Events, "times that a loss was reported";
        lost_sqns: Sqns, "sequence numbers reported as lost";
        withdrawn_sqns: Sqns, "sequence numbers announced once, never confirmed, and forgotten";
        nak_packets: Packets, "NAKs made";
        nak_sqns: Sqns, "sequence numbers asked for in NAKs, repeats included";
        unaffordable: Events, "requests put off: too little came from the sender, or it is unknown";
        congestion_reports: Packets, "NAKs made with the congestion report that the sender wants";
        polls_heard: Packets, "polls of senders that count their receivers";
        polr_packets: Packets, "replies to polls made";
        redirects_heard: Packets, "offers of local repairers heard; none is followed";
        spmr_packets: Packets, "SPM requests made";
        spmr_packets_omitted: Packets, "SPM requests not made, as too much waited to be sent";
        sessions_found: Events, "senders heard for the first time";
        sessions_shared: Events, "senders heard whose TSI another address has too: one is forged";
        sessions_ended: Events, "sessions that their sender ended";
        sessions_reset: Events, "sessions that their sender broke off";
        sessions_expired: Events, "senders not heard of for too long";
        sessions_evicted: Events, "senders forgotten to make room for others: barely known, or of \
            a host with more than its share";
        sessions_ignored: Events, "sessions of senders that this end does not take";
    }
}
