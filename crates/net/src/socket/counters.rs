//! The counters of the sockets.

base::counters! {
    /// What one [`crate::UdpIo`] has sent and received, and what failed.
    pub struct UdpCounters: "udp" {
        sent_datagrams: Packets, "datagrams handed to the kernel";
        sent_bytes: Bytes, "UDP payload handed to the kernel";
        send_calls: Events, "system calls that sent something or tried to";
        runs: Events, "runs the loop asked to send";
        short_runs: Events, "runs of which only the first part left";
        gso_runs: Events, "calls that let the kernel segment a run";
        blocked: Events, "runs turned back whole because the socket was full";
        send_full: Events, "sends refused with EAGAIN: the socket buffer was full";
        send_no_buffers: Events, "sends refused with ENOBUFS or ENOMEM: queue or memory was full";
        send_interrupted: Events, "sends repeated after a signal";
        send_too_big: Events, "datagrams longer than the path takes";
        fragmented_datagrams: Packets, "datagrams sent in fragments because the path got narrower";
        send_denied: Events, "sends refused by a local packet filter (EPERM)";
        send_unreachable: Events, "sends refused for want of a route or a live interface";
        send_icmp: Events, "sends that reported an earlier ICMP error and were repeated";
        send_failed: Events, "sends that failed for another reason";
        own_host_copies: Packets, "multicast packets sent again to a source on the same host";
        gso_fallbacks: Events, "times that kernel segmentation was reduced or given up";
        received_datagrams: Packets, "datagrams received, after GRO split";
        received_bytes: Bytes, "UDP payload received";
        receive_calls: Events, "system calls that received something or tried to";
        received_buffers: Events, "messages received, each one or more datagrams";
        gro_buffers: Events, "received messages that held more than one datagram";
        truncated_buffers: Events, "received messages longer than their buffer";
        receive_interrupted: Events, "receives repeated after a signal";
        receive_icmp: Events, "receives that reported an ICMP error and were repeated";
        icmp_reports: Events, "ICMP errors about what was sent, thrown away";
        receive_failed: Events, "receives that failed for a passing reason";
        kernel_drops: Skbs, "socket buffers the kernel dropped, the receive buffer being full";
        waits: Events, "waits for something to happen";
        sleeps: Events, "waits that slept in the kernel";
        wakes: Events, "waits ended by another thread";
        links_accepted: Events, "control connections accepted";
        links_opened: Events, "control connections dialled and open";
        links_redialled: Events, "control connections dialled twice: the first dial got no answer";
        links_refused: Events, "control connections turned away beyond the allowed number";
        links_failed: Events, "control connections that failed or were reset";
        link_sent_bytes: Bytes, "bytes written to control connections";
        link_received_bytes: Bytes, "bytes read from control connections";
        link_queue_full: Events, "times a control connection's queue was full";
        clipped_buffers: Events, "socket buffers the kernel made smaller than asked for";
        warnings: Events, "warnings given to the owner";
    }
}
