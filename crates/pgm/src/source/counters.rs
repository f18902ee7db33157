//! The counters of a source.

base::counters! {
    /// The counters of what a source has done.
    pub struct SourceCounters: "source" {
        odata_packets: Packets, "ODATA sent";
        odata_bytes: Bytes, "TPDU bytes sent as ODATA";
        rdata_packets: Packets, "RDATA sent";
        rdata_bytes: Bytes, "TPDU bytes sent as RDATA";
        spms: Packets, "SPMs sent";
        ncfs: Packets, "NAK confirmations sent";
        wire_bytes: Bytes, "everything sent, with IP and UDP headers";
        taken: Sqns, "packets taken into the window";
        packed: Messages, "messages taken into packets that carry several";
        fragmented: Messages, "messages cut into several packets";
        full: Events, "offers refused because the window is held";
        blocked: Events, "runs that the network had no room for";
        too_big: Packets, "packets that are longer than the path takes";
        failed: Packets, "packets that the network refused";
        upstream_packets: Packets, "packets looked at";
        upstream_handled: Packets, "packets understood and meant for this source";
        naks: Packets, "NAKs understood";
        nak_sqns: Sqns, "sequence numbers asked for";
        nak_queued: Sqns, "sequence numbers asked for and queued for repair";
        nak_merged: Sqns, "sequence numbers asked for while already queued";
        nak_eliminated: Sqns, "sequence numbers asked for again within the elimination interval";
        nak_refused: Sqns, "sequence numbers not repaired as strangers have had all they may have";
        nak_overdrawn: Sqns, "sequence numbers asked for by reporting hosts without a key that had \
            as much repaired as was sent, and then share the rate of strangers";
        nak_behind: Sqns, "sequence numbers asked for after they left the window";
        parity_packets: Packets, "parity sent as RDATA because it was asked for";
        parity_unasked: Packets, "parity sent as ODATA after its group";
        parity_bytes: Bytes, "TPDU bytes of parity packets";
        parity_naks: Packets, "NAKs for parity understood";
        parity_queued: Events, "NAKs for parity that queued parity packets";
        nak_beyond: Sqns, "sequence numbers asked for before they were sent: stray or forged";
        ncf_suppressed: Packets, "NAKs that got no confirmation because too many came at once";
        nnaks: Packets, "null NAKs heard";
        congestion_reports: Packets, "NAKs with a congestion report, which nothing here asks for";
        polls: Packets, "polls sent to count receivers";
        poll_replies: Packets, "replies to polls, one of each receiver and round";
        spmrs: Packets, "SPM requests heard";
    }
}
