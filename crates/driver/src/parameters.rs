//! The timers and limits of the run loop and of both ends of a session, as rows of the table of
//! parameters.

use std::time::Duration;

use base::parameter::fixed::{ms, s};

// name: type = value, unit, role [set by flag], source, help
base::parameters! {
    RUNS_MAX: u32 = 4, "runs", Both,
        "judgement: NAKs are served also at full rate",
        "runs sent before the loop looks at what has arrived";
    LINK_EVENTS_MAX: u32 = 64, "events", Both,
        "judgement: control connections may not starve the packets",
        "events of control connections handled in one turn of the loop";
    LINK_BYTES_MAX: usize = 1 << 20, "bytes", Both,
        "judgement: less than a store takes after it has asked for a pause",
        "bytes of control connections handled in one turn of the loop; one event may go beyond it";
    LINK_COMMANDS_MAX: u32 = 256, "commands", Both,
        "judgement: as LINK_EVENTS_MAX, and an event may be answered several times",
        "messages and other commands to control connections in one turn of the loop";
    FILES_BACKLOG_BYTES: usize = 512 << 10, "bytes", Source,
        "judgement: eight runs; more would only be older when it leaves",
        "unsent blocks of files that wait in the transmit window";
    FILES_BURST_BYTES: usize = 64_000, "bytes", Source,
        "one run",
        "bytes of files read in one go";
    CONFIRMED_LINGER: Duration = ms(30), "time", Source,
        "judgement: three SPMs, 10 ms apart",
        "how long a sender announces its end when all who report have confirmed everything";
    UNHEARD_LINGER: Duration = ms(500), "time", Source,
        "judgement: who lacks the last packets asks for them within it, by a path of 100 ms too",
        "how long a sender that takes reports announces its end when no receiver was heard";
    BREAK_OFF_SPMS: u32 = 3, "SPMs", Source,
        "as many as at a good end",
        "how many SPMs tell the receivers that a session was broken off";
    BREAK_OFF_TIME_MAX: Duration = s(1), "time", Source,
        "judgement: under a rate limit SPMs wait",
        "longest time to send the SPMs that tell of a broken-off session";
    LEAVE_TIME_MAX: Duration = s(1), "time", Receiver,
        "judgement: a lost segment is sent again within it",
        "how long a receiver of messages that leaves waits until its senders have been told";
    FRAME_HEADROOM_PERCENT: u32 = 25, "percent of the rate", Source,
        "judgement: repairs of 2 % loss for three receivers, and a host's delays",
        "how much faster than evenly a frame leaves, so that repairs come within its interval";
    FRAME_CATCH_UP_PART: u32 = 4, "part of an interval", Source,
        "judgement: the headroom makes up for it within the next interval",
        "after a delay of this host, a frame makes up at most its interval divided by this number, \
         where that is more than pacing_catch_up";
    FRAME_CATCH_UP_MAX: Duration = ms(20), "time", Source,
        "judgement: what then leaves at once fits the receivers' socket buffers",
        "longest delay of this host that a frame makes up for";
    FRAME_QUANTUM_PART: u32 = 50, "part of an interval", Source,
        "judgement: few wake-ups, and bursts that no switch notices",
        "one burst of a frame lasts its interval divided by this number, where that is more than \
         pacing_quantum";
    FRAME_QUANTUM_MAX: Duration = ms(1), "time", Source,
        "a full run at 60 MB/s",
        "longest burst of a frame";
    FRAMES_BACKLOG: usize = 2, "frames", Source,
        "judgement: one that leaves, and the next; a third would only be older when it leaves",
        "frames that wait to leave before a new one is dropped";
    FRAME_SPM_HEARTBEAT_MAX: Duration = ms(500), "time", Source,
        "judgement: a person who starts a display waits no longer for the first frame",
        "longest interval of SPMs by which receivers find a sender of frames that is idle";
}
