//! Files to one host over TCP alone: `towline send --to` beside iperf3 with sendfile, nc, an rsync
//! daemon and tar, and beside the parts of its own work.
//!
//! iperf3 only moves bytes: its receiver throws them away. Towline hashes every byte at both ends,
//! writes and syncs it, and proves the delivery. On a machine with few processors, all these parts
//! of the work share the processors. So the processor time of the parts says how fast a file can be
//! sent at best. The parts are as many bytes by iperf3, a copy that is synced, and a hash at each
//! end. All files lie in memory, and are synced there, too.

use std::{
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use lab::{Host, Lab, LabSpec};

use crate::{
    files::{Load, timed},
    machine::Ticks,
    peer::Peer,
    program::{self, Running},
    record,
    sample::{Sample, Series, spread},
};

/// The function that measures all peers in turn.
type Compare = fn(&Lab, &[Box<dyn Peer + '_>], usize, &str) -> Result<Vec<Series>, String>;

/// Compares a long file over a cable, over a line that loses one segment in a hundred, and over a
/// long path; and many small files over a cable.
pub(crate) fn run(pairs: usize, parts: &[String], compare: Compare) -> Result<(), String> {
    let failed = |error: lab::LabError| error.to_string();
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    if wants("tcp-file") {
        let [(what, files, bytes), _] = LOADS;
        let load = Load::make("tcp-file", files, bytes)?.for_one_receiver();
        let lab = Lab::new(&LabSpec::new(2).direct()).map_err(failed)?;
        let ways = [OURS, IPERF, NETCAT, RSYNC, COPY, HASH, OURS_AGAIN];
        let title = format!("{what} over TCP, {pairs} pairs");
        let series = compare(&lab, &all(&load, &ways), pairs, "MB/s")?;
        record::keep("tcp-file", &title, "MB/s", &series)?;
        println!("{}", beside_the_parts(&series));
    }
    if wants("tcp-loss") {
        let load = Load::make("tcp-loss", 1, LINE_BYTES)?.for_one_receiver();
        let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).map_err(failed)?;
        lab.host(1).set_segment_loss(10, 1_000).map_err(failed)?;
        let title = format!("one file of 500 MB over TCP, 1 % of segments lost, {pairs} pairs");
        let series = compare(&lab, &all(&load, &LINE), pairs, "MB/s")?;
        record::keep("tcp-loss", &title, "MB/s", &series)?;
    }
    if wants("tcp-far") {
        let load = Load::make("tcp-far", 1, LINE_BYTES)?.for_one_receiver();
        let lab = Lab::new(&LabSpec::new(2)).map_err(failed)?;
        let path = lab.lengthen(1, ONE_WAY).map_err(failed)?;
        let title = format!("one file of 500 MB over TCP, a path of 50 ms, {pairs} pairs");
        let series = compare(&lab, &all(&load, &LINE), pairs, "MB/s")?;
        record::keep("tcp-far", &title, "MB/s", &series)?;
        println!("frames that the path itself lost: {}", path.overflows());
    }
    if wants("tcp-tree") {
        let [_, (what, files, bytes)] = LOADS;
        let load = Load::make("tcp-tree", files, bytes)?.for_one_receiver();
        let lab = Lab::new(&LabSpec::new(2).direct()).map_err(failed)?;
        let ways = [OURS, RSYNC_TREE, TAR, OURS_AGAIN];
        let title = format!("{what} over TCP, {pairs} pairs");
        let series = compare(&lab, &all(&load, &ways), pairs, "MB/s")?;
        record::keep("tcp-tree", &title, "MB/s", &series)?;
    }
    Ok(())
}

/// The parts that can be asked for by name.
pub(crate) const PARTS: [&str; 4] = ["tcp-file", "tcp-loss", "tcp-far", "tcp-tree"];

/// What is sent over a cable: its name, how many files, and how many bytes each has.
pub(crate) const LOADS: [(&str, usize, usize); 2] = [
    ("one file of 2 GB", 1, 2_000_000_000),
    ("20,000 files of 4 KiB", 20_000, 4096),
];

/// Makes the transfer of a load by `towline send --to` and `recv --listen`, with their defaults.
pub(crate) const fn ours(load: &Load) -> Transfer<'_> {
    Transfer { way: &OURS, load }
}

fn all<'a>(load: &'a Load, ways: &'a [Way]) -> Vec<Box<dyn Peer + 'a>> {
    let peer = |way| Box::new(Transfer { way, load }) as Box<dyn Peer + 'a>;
    ways.iter().map(peer).collect()
}

/// A way to bring the load from host 0 to host 1, or a part of that work: lines of a shell. They
/// find the files in `$FROM`, put them into `$TO`, and reach host 1 at `$HOST` and `$PORT`.
#[derive(Debug)]
struct Way {
    name: &'static str,
    /// What waits at host 1 when the time begins.
    server: Option<Server>,
    /// What runs at host 0.
    client: &'static str,
    leaves: Leaves,
}

#[derive(Debug)]
enum Server {
    /// It ends with the transfer.
    Ends(&'static str),
    /// It does not end by itself: it is stopped after the transfer.
    Stays(&'static str),
}

/// What the way leaves in `$TO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    Files,
    Nothing,
}

/// One way with one load.
#[derive(Debug)]
pub(crate) struct Transfer<'a> {
    way: &'a Way,
    load: &'a Load,
}

impl Peer for Transfer<'_> {
    fn name(&self) -> &'static str {
        self.way.name
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let target = self.load.target(1)?;
        let shell = |host: &Host, line: &str| self.shell(lab, host, &target, line);
        let (mut ends, mut stays) = (Vec::new(), Vec::new());
        match self.way.server {
            Some(Server::Ends(line)) => ends.push(Running::start(&mut shell(lab.host(1), line)?)?),
            Some(Server::Stays(line)) => {
                stays.push(Running::start(&mut shell(lab.host(1), line)?)?);
            }
            None => {}
        }
        let mut client = shell(lab.host(0), self.way.client)?;
        if self.way.leaves == Leaves::Files {
            return timed(self.load, ends, &mut stays, || Running::start(&mut client));
        }
        thread::sleep(SETTLE);
        let (before, started) = (Ticks::read(), Instant::now());
        let (said, peak_kib) = Running::start(&mut client)?.finish_with(ends, LIMIT)?;
        let bytes = self.load.bytes() as f64;
        let by_clock = bytes / 1e6 / started.elapsed().as_secs_f64();
        Ok(Sample {
            rate_per_s: told_rate(&said[0]).unwrap_or(by_clock),
            bytes,
            peak_kib,
            ..Sample::since(before)
        })
    }
}

impl Transfer<'_> {
    fn shell(&self, lab: &Lab, host: &Host, to: &Path, line: &str) -> Result<Command, String> {
        let mut command = host.command("sh");
        command.args(["-c", line]);
        command.env("FROM", self.load.source()).env("TO", to);
        command.env("BYTES", self.load.bytes().to_string());
        command.env("HOST", lab.host(1).ipv4().to_string());
        command.env("PORT", "7500");
        command.env("TOWLINE", program::ours()?);
        Ok(command)
    }
}

/// Returns the rate in MB/s that iperf3 tells, without its set-up; `None` for other programs.
fn told_rate(said: &str) -> Option<f64> {
    let report: serde_json::Value = serde_json::from_str(said).ok()?;
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64()?;
    Some(bits / 8e6)
}

/// Compares the processor time of ours with that of the parts of its work, pair by pair.
fn beside_the_parts(series: &[Series]) -> String {
    let of = |way: &Way| series.iter().find(|row| row.name == way.name);
    let parts = [(1.0, of(&IPERF)), (1.0, of(&COPY)), (HASHED_AT, of(&HASH))];
    let (Some(ours), [(_, Some(_)), (_, Some(_)), (_, Some(_))]) = (of(&OURS), parts) else {
        return "no sum of the parts: iperf3 or b3sum is missing".to_owned();
    };
    let cost = |row: &Series, pair: usize| row.samples()[pair].cpu_seconds_per_gb();
    let sum = |pair| {
        let costs = parts.map(|(times, part)| times * part.map_or(0.0, |part| cost(part, pair)));
        costs.iter().sum::<f64>()
    };
    let pairs = 0..ours.samples().len();
    let [_, sums, _] = spread(pairs.clone().map(sum));
    let [low, ratio, high] = spread(pairs.map(|pair| cost(ours, pair) / sum(pair)));
    let processors = thread::available_parallelism().map_or(1, usize::from);
    format!(
        "its parts (iperf3 -Z, a copy, a hash at each end): {sums:.2} CPU s/GB, which \
         {processors} processors do at {:.0} MB/s\n\
         CPU of ours / its parts: {ratio:.2} ({low:.2} .. {high:.2})\n",
        processors as f64 * 1e3 / sums
    )
}

const OURS: Way = Way {
    name: "towline send --to",
    server: Some(Server::Ends(RECV)),
    client: SEND,
    leaves: Leaves::Files,
};
/// Towline once more, which shows the noise.
const OURS_AGAIN: Way = Way {
    name: "towline send --to (again)",
    ..OURS
};
const RECV: &str = r#"exec "$TOWLINE" recv "$TO" --listen "$PORT" --from any --json"#;
const SEND: &str = r#"exec "$TOWLINE" send "$FROM" --json --to "$HOST:$PORT""#;

/// iperf3 with sendfile: as many bytes, from memory to nowhere.
const IPERF: Way = Way {
    name: "iperf3 -Z",
    server: Some(Server::Ends(r#"exec iperf3 -s -1 -p "$PORT""#)),
    client: r#"exec iperf3 -Z -J -n "$BYTES" -c "$HOST" -p "$PORT""#,
    leaves: Leaves::Nothing,
};
const NETCAT: Way = Way {
    name: "nc, and sync",
    server: Some(Server::Ends(
        r#"nc -l "$PORT" > "$TO/00000" && exec sync "$TO/00000""#,
    )),
    client: r#"exec nc -N "$HOST" "$PORT" < "$FROM/00000""#,
    leaves: Leaves::Files,
};
/// rsync to a daemon, with whole files: there are no files at the target to compare with.
const RSYNC: Way = Way {
    name: "rsync --fsync to a daemon",
    server: Some(Server::Stays(RSYNC_DAEMON)),
    client: r#"exec rsync --whole-file --times --fsync "$FROM"/* "rsync://$HOST:$PORT/in/""#,
    leaves: Leaves::Files,
};
const RSYNC_TREE: Way = Way {
    name: "rsync -r --fsync to a daemon",
    client: r#"exec rsync -r --whole-file --times --fsync "$FROM/" "rsync://$HOST:$PORT/in/""#,
    ..RSYNC
};
const RSYNC_DAEMON: &str = r#"
    printf 'use chroot = no\nuid = 0\ngid = 0\n[in]\npath = %s\nread only = no\n' "$TO" \
        > "$TO.rsyncd" &&
    exec rsync --daemon --no-detach --port "$PORT" --config "$TO.rsyncd""#;
const TAR: Way = Way {
    name: "tar | nc, and sync",
    server: Some(Server::Ends(
        r#"nc -l "$PORT" | tar -x -C "$TO" && exec sync -f "$TO""#,
    )),
    client: r#"tar -c -C "$FROM" . | nc -N "$HOST" "$PORT""#,
    leaves: Leaves::Files,
};

/// The file copied and synced.
const COPY: Way = Way {
    name: "cp, and sync (a part)",
    server: None,
    client: r#"cp "$FROM"/* "$TO" && exec sync "$TO"/*"#,
    leaves: Leaves::Files,
};
/// The file hashed by one thread.
const HASH: Way = Way {
    name: "b3sum, one thread (a part)",
    server: None,
    client: r#"exec b3sum --num-threads 1 --no-mmap "$FROM"/*"#,
    leaves: Leaves::Nothing,
};
/// Both ends hash every byte.
const HASHED_AT: f64 = 2.0;

/// What is compared over a line that is lossy or long: there the line is the limit.
const LINE: [Way; 5] = [OURS, IPERF, NETCAT, RSYNC, OURS_AGAIN];
const LINE_BYTES: usize = 500_000_000;
/// How long a packet is under way on the long path.
const ONE_WAY: Duration = Duration::from_millis(25);
const SETTLE: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_summed_pair_by_pair_and_the_hash_counts_at_both_ends() {
        let row = |way: &Way, costs: [f64; 3]| {
            let mut row = Series::new(way.name);
            for cpu_seconds in costs {
                row.push(Sample {
                    cpu_seconds,
                    bytes: 1e9,
                    ..Sample::default()
                });
            }
            row
        };
        let mut series = vec![
            row(&OURS, [3.0, 9.0, 2.0]),
            row(&IPERF, [0.5, 1.0, 0.5]),
            row(&COPY, [0.5, 1.0, 0.5]),
            row(&HASH, [0.5, 2.0, 0.5]),
        ];
        let said = beside_the_parts(&series);
        assert!(
            said.contains("a hash at each end): 2.00 CPU s/GB"),
            "{said}"
        );
        assert!(said.contains("its parts: 1.50 (1.00 .. 1.50)"), "{said}");
        series.pop();
        assert!(beside_the_parts(&series).starts_with("no sum"));
    }

    #[test]
    fn only_a_report_of_iperf3_tells_a_rate() {
        let report = r#"{"end": {"sum_received": {"bits_per_second": 8e9}}}"#;
        assert_eq!(told_rate(report), Some(1000.0));
        assert_eq!(told_rate("5d1f  /dev/shm/file"), None);
    }
}
