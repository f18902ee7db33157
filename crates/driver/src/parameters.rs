//! The timers and limits of the run loop and of the ends of sessions: rows of the one table of
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
}
