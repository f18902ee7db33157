//! The timers and limits of control conversations, reports and transfers: rows of the one table of
//! parameters, in the order of the reference manual.
//!
//! The numbers of the rate control stand beside its rules in `rate`, because each means something
//! only there.

use std::time::Duration;

use base::parameter::fixed::{ms, s, us};

// name: type = value, unit, role [set by flag], source, help
base::parameters! {
    DIAL_JITTER_MAX: Duration = s(2), "time", Receiver,
        "judgement: 2,000 receivers dial within it, 1 ms apart",
        "longest random wait before a receiver dials a sender that it has just heard; 1 ms for \
         each receiver where they are fewer";
    REDIAL_MIN: Duration = ms(50), "time", Both,
        "judgement: at most 12,000 dials a second of 10,000 receivers whose sender is gone",
        "shortest wait before a peer is dialled again; a sender of files over TCP doubles it with \
         each try; a receiver adds a random time to it instead, whose bound doubles with each try";
    REDIAL_DOUBLINGS: u32 = 5, "times", Both,
        "judgement: the longest wait is 1.65 s, well below the patience of both ends",
        "how often the wait of a sender, or the bound of a receiver's random time, doubles while a \
         peer cannot be reached";
    INVITE_LATER: Duration = s(1), "time", Source,
        "judgement: a person starts a receiver, or another transfer ends, within seconds",
        "how long a sender that dials waits before it dials a receiver again that is busy";
    HOST_DIALS_AT_ONCE: u32 = 16, "dials", Receiver,
        "judgement: as many senders as one host mostly has, restarted together",
        "how often a receiver dials one host at once that has not answered; half of it for senders \
         that were dialled before";
    HOST_DIAL_INTERVAL: Duration = ms(250), "time", Receiver,
        "judgement: a person waits no longer; forged marks cost their victim four packets a second",
        "time after which one host that has not answered is dialled once more than \
         HOST_DIALS_AT_ONCE";
    DIALS_AT_ONCE: u32 = 64, "dials", Receiver,
        "four times HOST_DIALS_AT_ONCE",
        "how often a receiver dials at once all hosts together that have not answered";
    DIAL_INTERVAL: Duration = us(62_500), "time", Receiver,
        "a quarter of HOST_DIAL_INTERVAL",
        "time after which a host is dialled once more than DIALS_AT_ONCE";
    DIAL_PUT_OFF: Duration = s(1), "time", Receiver,
        "judgement: the next mark of a sender that is there comes sooner",
        "how long a dial waits that the limits do not allow, with a random time of up to as much \
         on top, unless its sender is heard again before";
    ANSWER_PATIENCE: Duration = s(3), "time", Receiver,
        "judgement: two lost segments and an answer by a bad path",
        "how long a receiver waits for a sender that it dials to admit it; then another has its \
         place";
    ANSWER_EXPECTED: Duration = ms(500), "time", Receiver,
        "judgement: most paths have answered twice by then",
        "how long a sender that is dialled keeps its place when all are taken, and how long a \
         receiver of one transfer waits before it asks another sender beside it; where senders \
         wait in line, one that was greeted has ANSWER_PATIENCE";
    CALLS_MAX: u32 = 16, "senders", Receiver,
        "judgement: as many sessions begin at once",
        "most senders of messages that a receiver dials at a time that have not answered; half of \
         them at one host";
    GREETING_TIMEOUT: Duration = s(5), "time", Source,
        "judgement: ten round trips of a bad path",
        "time after which a connection is closed whose receiver has not said who it is";
    GREETINGS_MAX: u32 = 256, "connections", Source,
        "judgement: what is open to everybody has to be bounded",
        "connections beside those of the receivers, for those that have yet to say who they are";
    FORWARDS_MAX: u32 = 1024, "receivers", Both,
        "judgement: 128 MiB when none of them reads; a further relay serves more",
        "most receivers that report through one relay; half of them at one host";
    FORWARD_BYTES_MAX: usize = 64 << 10, "bytes", Both,
        "judgement: a round trip of 1 ms at 500 Mbit/s",
        "bytes that wait at a relay for one end of a connection; with more than that the relay \
         stops reading from the other end";
    RECEIVERS_MAX: u32 = 10_000, "receivers", Source,
        "judgement: with REPORT_SHARE each of 10,000 reports every 2 s",
        "most receivers that report to one sender";
    STRANGERS_MAX: u32 = 64, "hosts", Source,
        "judgement: one is enough to linger for",
        "hosts remembered that ask for repairs and of which no receiver joins";
    SILENCE_MAX: Duration = s(5), "time", Source,
        "five times KEEP_ALIVE, twice REPORT_INTERVAL_MAX",
        "silence after which a receiver no longer keeps out another receiver of its name";
    DUPLICATE_PATIENCE: Duration = s(7), "time", Receiver,
        "SILENCE_MAX of the sender, and the longest wait between two dials",
        "how long a receiver goes on asking for a name that the sender says is taken";
    LINK_QUEUE_MAX: usize = 1 << 20, "bytes", Both,
        "judgement: more than any answer has; one message may go beyond it",
        "bytes queued on a control connection beyond which a peer that does not read is given up";
    EVENTS_MAX: u32 = 4 * 10_000, "events", Both,
        "RECEIVERS_MAX may each join, be lost, come back and end before the owner looks",
        "events kept for an owner that does not take them; the oldest go first, and are counted";

    REPORT_SHARE: Duration = us(200), "time", Source,
        "judgement: a sender reads at most 5,000 reports a second, however many receivers it has",
        "time for one report of all receivers; with N receivers each of them waits N times as long";
    REPORT_INTERVAL_MIN: Duration = ms(5), "time", Receiver,
        "judgement: the shares of 25 receivers; fewer need not be spread",
        "shortest interval between two reports of a receiver that has moved, and the interval of \
         one that the others wait for";
    REPORT_INTERVAL_MAX: Duration = s(2), "time", Receiver,
        "REPORT_SHARE of 10,000 receivers; well below SILENCE_MAX",
        "longest interval that a sender can ask for";
    REPORT_FAR_INTERVAL_MIN: Duration = ms(1), "time", Receiver,
        "judgement: waiting for such a report would limit the rate",
        "shortest interval between two reports of a receiver that has moved as far as the sender \
         has said";
    KEEP_ALIVE: Duration = s(1), "time", Receiver,
        "judgement: the sender sees a living peer",
        "longest interval between two reports of a receiver, whether it has moved or not";
    ECHO_AGE_MAX: Duration = s(1), "time", Source,
        "judgement: SPMs come far more often while data flows",
        "longest round trip that a report can tell";
    ARRIVAL_SPAN_MIN: Duration = ms(10), "time", Receiver,
        "judgement: shorter spans measure bursts",
        "shortest time over which a receiver measures the rate at which data arrives";
    TRAVEL_HALF: Duration = s(5), "time", Receiver,
        "judgement: routes and the drift of clocks change more slowly",
        "half of the span whose shortest travel time counts as that of an empty path";

    MESSAGE_REPORT_INTERVAL: Duration = ms(50), "time", Source,
        "judgement: the flow window holds far more than 50 ms of most sessions",
        "report interval that a sender of messages asks for";
    DROP_AFTER: Duration = s(2), "time", Source set by "pub --timeout",
        "judgement: twice KEEP_ALIVE",
        "how long a receiver may be behind, or hold the others back, before policy drop gives it \
         up; by policy lose it is given up only when the flag is set";
    STALL_TIMEOUT: Duration = s(300), "time", Source set by "pub --timeout",
        "judgement: a host that is restarted, or a person who looks, is back by then",
        "how long a receiver may be behind without any progress before policy wait gives it up";
    GUEST_PATIENCE: Duration = s(5), "time", Source,
        "judgement: a pause of a busy host is shorter",
        "how long receivers of one host may hold back those of other hosts when they are not \
         expected and there is no key; after that they are not waited for";
    GUEST_SHARE: u32 = 4, "times", Source,
        "judgement: one in so many seconds is what a hostile host can cost",
        "the time of GUEST_PATIENCE comes back this many times more slowly than it is spent";
    STALLED_AFTER: Duration = s(1), "time", Source,
        "KEEP_ALIVE",
        "time without movement after which a receiver that is behind is reported as stalled";
    LOOK_INTERVAL: Duration = ms(250), "time", Source,
        "a twentieth of GUEST_PATIENCE",
        "how often a sender of messages looks who is slow, and who holds the others back";
    HISTORY_MAX: u32 = 2400, "looks", Source,
        "twice as many looks as STALL_TIMEOUT has",
        "looks at the newest position that are remembered, to tell how far behind a receiver is";
    REPORTS_QUEUED_MAX: usize = 4096, "bytes", Receiver,
        "judgement: a hundred reports",
        "bytes queued for a sender of messages beyond which no report is added";
    ASK_PATIENCE: Duration = s(1), "time", Receiver,
        "KEEP_ALIVE",
        "how long a receiver of messages waits for a sender's own word whether a trail or an end \
         that packets announce is real; without an answer it believes them";
    SESSIONS_MAX: u32 = 1024, "sessions", Receiver,
        "judgement: more than peers_max by default",
        "most sessions of messages that one receiver reports to";

    JOIN_TIMEOUT: Duration = s(10), "time", Source set by "send --join-timeout",
        "judgement: as long as a person waits before looking for the cause",
        "how long a sender of files waits for the expected receivers before content starts";
    LINE_TIMEOUT: Duration = s(3_600), "time", Source set by "send --line-timeout",
        "judgement: a queue of 100 files of 45 GB over a link of 10 Gbit/s",
        "how long a receiver of send --to may have a sender wait its turn since it last got \
         something";
    SETTLE_TIME: Duration = ms(300), "time", Source,
        "judgement: ten SPMs and two dials; who is up and hears most packets has joined by then",
        "time without a new receiver after which content starts, once one has joined; not used \
         when the sender is told whom to expect";
    GUEST_TIME_MIN: Duration = s(1), "time", Source,
        "KEEP_ALIVE: a guest that makes progress has told so",
        "shortest time for which guests are served when all expected receivers are done; a guest \
         that makes no progress for this long is not waited for";
    PROGRESS_TIMEOUT: Duration = s(30), "time", Source set by "send --timeout",
        "judgement: a host that restarts is back by then",
        "time without progress after which a receiver of files is given up";
    COMMIT_FACTOR: u32 = 10, "times", Source,
        "judgement: a slow disk syncs a large tree in five minutes",
        "PROGRESS_TIMEOUT is this many times longer while a store prepares or puts files in place";
    RECONNECT_TIMEOUT: Duration = s(10), "time", Source,
        "judgement: longer than DUPLICATE_PATIENCE",
        "how long a receiver of files whose connection broke may take to come back; never longer \
         than the progress timeout";
    ANSWER_TIMEOUT: Duration = s(3), "time", Source,
        "SETTLE_TIMEOUT and ANSWER_JITTER_MAX of the receivers, and a round trip",
        "how long all wait for the answers of some to a pass";
    SLOW_AFTER: Duration = s(5), "time", Source,
        "judgement: a pause of a busy host is shorter",
        "how long a receiver may hold the others back before --slow applies";
    HOLD_PATIENCE: Duration = s(1), "time", Source,
        "KEEP_ALIVE",
        "how long a receiver that stands still holds the rest back";
    DISK_PATIENCE: Duration = ms(2_500), "time", Source,
        "two and a half times KEEP_ALIVE",
        "silence after which a receiver that waited for its disk is not thought to wait any more";
    PROGRESS_INTERVAL: Duration = ms(200), "time", Source,
        "judgement: what a progress display needs",
        "shortest interval between two reports of progress that a sender of files asks for";
    TRANSFER_LINGER: Duration = s(2), "time", Both,
        "judgement: a lost segment is sent again within it",
        "how long the last words of a transfer may take";
    NEEDS_MAX: u32 = 16_384, "ranges", Source,
        "twice NEED_RANGES_MAX; 16 bytes of memory each",
        "most ranges of bytes kept of what one receiver lacks";
    SENDER_TICK: Duration = ms(100), "time", Source,
        "judgement: a fraction of every deadline",
        "how often a sender of files looks at its deadlines; ten times as often at its end";

    SETTLE_TIMEOUT: Duration = s(1), "time", Receiver,
        "judgement: repairs on a LAN take milliseconds, on a far path a second",
        "how long a receiver waits at the end of a pass for repairs that are under way";
    MANIFEST_SETTLE: Duration = ms(200), "time", Receiver,
        "judgement: everybody waits for the manifest",
        "how long a receiver waits for repairs of a manifest before it asks over the connection";
    ANSWER_JITTER_MAX: Duration = s(1), "time", Receiver,
        "REPORT_SHARE of 5,000 receivers",
        "longest time over which the answers to a pass are spread";
    GIVE_UP_AFTER: Duration = s(30), "time", Receiver set by "recv --timeout",
        "PROGRESS_TIMEOUT of the sender; with less, a slow connection looks like no answer, so it \
         can only be raised",
        "how long a receiver of files waits for its sender to come back";
    READING_RESTS_MAX: Duration = s(1), "time", Receiver,
        "judgement: well below the patience of the peer",
        "longest time for which a connection is left unread while the store is behind";
    RANGES_MAX: u32 = 65_536, "ranges", Receiver,
        "judgement: 1 MiB of memory, 16 bytes each",
        "most separate ranges that a receiver notes of what it holds of one object";
    NEED_RANGES_MAX: u32 = 8_192, "ranges", Receiver,
        "judgement: an answer of 128 KiB",
        "most ranges that a receiver asks for after a pass";
    SLAB_ATTEMPTS_MAX: u32 = 3, "times", Receiver,
        "judgement: a disk that spoils a slab thrice will do so again",
        "how often the hash of one slab may be wrong whose bytes came over the connection, before \
         the transfer fails; after a first time they come only that way";
    MANIFEST_BYTES_MAX: usize = 64 << 20, "bytes", Receiver,
        "judgement: a million entries with paths of 60 bytes",
        "longest manifest";
    ENTRIES_MAX: u32 = 1_000_000, "entries", Receiver,
        "judgement; with MANIFEST_BYTES_MAX",
        "most entries of a manifest";
    SLABS_MAX: u32 = 1 << 22, "slabs", Receiver,
        "judgement: 4 TiB in slabs of 1 MiB; 72 bytes of memory each",
        "most slabs of a manifest";

    TRANSFERS_MAX: u32 = 16, "transfers", Receiver set by "recv --max-transfers",
        "judgement; with recv --serve, otherwise 1",
        "most transfers that a receiver takes at a time";
    TRANSFERS_PER_HOST_MAX: u32 = 8, "transfers", Receiver,
        "half of TRANSFERS_MAX: one host cannot keep all others out",
        "most transfers that a receiver takes at a time from senders of one host";
    PROSPECTS_MAX: u32 = 4, "senders", Receiver,
        "judgement; without recv --serve the second only after ANSWER_EXPECTED",
        "most senders that a receiver asks at a time what they have; half of them at one host";
    SENDERS_WAITING_MAX: u32 = 10_000, "senders", Receiver,
        "judgement: as many as RECEIVERS_MAX at the other end; 1 KiB of memory each, as who waits \
         may say nothing",
        "most senders that wait, connected, for a place of recv --listen --serve; half of them of \
         one host. Fewer where the process may have fewer descriptors";
    SENDERS_LOOK_INTERVAL: Duration = ms(50), "time", Receiver,
        "a tenth of ANSWER_EXPECTED",
        "how often a receiver looks whether a sender that waits can have a place, when nothing \
         happens meanwhile";
    WAIT_INTERVAL: Duration = s(10), "time", Receiver,
        "judgement: 1,000 messages a second to SENDERS_WAITING_MAX senders",
        "how often a sender that waits in line is told so again";
    WAIT_PATIENCE: Duration = s(30), "time", Source,
        "WAIT_INTERVAL, three times",
        "how long a sender that waits its turn believes that it has one after it was told so last; \
         then it dials again";
    MANIFESTS_BYTES_MAX: usize = 128 << 20, "bytes", Receiver,
        "twice MANIFEST_BYTES_MAX",
        "bytes of manifests kept for all transfers together";
    TURNED_AWAY_MAX: u32 = 64, "senders", Receiver,
        "judgement; the oldest is forgotten, asked again, and counted",
        "senders remembered as turned away";

    FRAME_BYTES_MAX: usize = 64 << 20, "bytes", Receiver,
        "judgement: 8 bytes for each of 8 million pixels",
        "longest frame that is taken";
    FRAME_MEMORY_BYTES_MAX: usize = 256 << 20, "bytes", Receiver,
        "four times FRAME_BYTES_MAX",
        "memory for frames that are not whole or not given out; a sender that uses more than its \
         share gives way to others";
    FRAME_STREAMS_MAX: u32 = 64, "senders", Receiver,
        "peers_max",
        "most senders whose frames a receiver takes at a time";
    FRAMES_OPEN_MAX: u32 = 256, "frames", Receiver,
        "judgement: a second of frames at 240 a second",
        "most frames of a sender that were heard and are neither given out nor given up";
    FRAME_ROOMS_KEPT: u32 = 4, "frames", Receiver,
        "judgement: as many as are open at a time by a good path",
        "most frames whose memory is kept to be used again";
    FRAME_LOSSES_KEPT: u32 = 1024, "runs", Receiver,
        "judgement: far more than a second feed has still to tell of",
        "most runs of lost frames remembered of two feeds, to count what one tells of them later";
    FRAME_DEADLINE_MAX: Duration = s(10), "time", Both,
        "judgement: within it a frame is of use for a display; it is repair_time_max",
        "longest time that a frame's deadline may be after its timestamp";
}
