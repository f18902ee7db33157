//! The machine, and how busy it was.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::Host;

/// Returns the machine in one line: processor, cores, kernel, and how long its idle processors
/// poll.
pub(crate) fn describe() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let cores = cpuinfo
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let idle = halt_poll_ns().map_or_else(String::new, |ns| format!(", guest_halt_poll_ns {ns}"));
    format!("{model}, {cores} cores, Linux {}{idle}", kernel.trim())
}

/// Returns the kernel's clock source, such as `tsc`.
pub(crate) fn clock_source() -> Option<String> {
    word("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

/// Returns the governor of the first processor's frequency, such as `performance`; `None` where the
/// kernel does not control the frequency, as in most guests.
pub(crate) fn governor() -> Option<String> {
    word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
}

/// Returns the versions of the rivals that are installed as packages of the system, as `name
/// version`.
pub(crate) fn rivals() -> Vec<String> {
    let mut ask = Command::new("dpkg-query");
    ask.args(["-W", "-f", "${Package} ${Version}\n"])
        .args(RIVALS);
    // Without dpkg there is nothing to tell. When a package is not installed, dpkg-query fails, but
    // names the others all the same.
    let Ok(output) = ask.output() else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

/// The packages that `scripts/setup.sh bench` installs to measure beside us.
const RIVALS: [&str; 16] = [
    "libpgm-dev",
    "libzmq3-dev",
    "libnorm-dev",
    "uftp",
    "udpcast",
    "sockperf",
    "iperf3",
    "rsync",
    "netcat-openbsd",
    "b3sum",
    "nuttcp",
    "tcpdump",
    "wireshark-common",
    "netsniff-ng",
    "libtrace-tools",
    "tcpreplay",
];

fn word(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// Returns how long an idle processor of this guest looks for work before it returns to the
/// hypervisor, in nanoseconds. `None` if the kernel's governor for idle processors is not haltpoll.
fn halt_poll_ns() -> Option<u64> {
    let governor = fs::read_to_string(GOVERNOR).ok()?;
    let is_it = governor.trim() == "haltpoll";
    is_it.then(|| fs::read_to_string(HALT_POLL).ok()?.trim().parse().ok())?
}

/// Gives idle processors the kernel's default polling time, on a guest with another setting. The
/// old setting returns when this is dropped or when the program dies.
///
/// With a polling time of 0, each wait of a program returns the processor to the hypervisor, and
/// waking up takes 100 us and more. With 200 us of polling it takes 17 us. All peers run with the
/// same setting.
#[derive(Debug)]
pub(crate) struct HaltPoll {
    keeper: Child,
}

impl HaltPoll {
    /// Sets the kernel's default polling time.
    pub(crate) fn set() -> Result<Self, String> {
        let was = halt_poll_ns().ok_or("--halt-poll: no haltpoll governor on this machine")?;
        // A separate program restores the old setting even when this one is killed.
        let keeper = Command::new("sh")
            .args(["-c", KEEP, "sh", &was.to_string(), HALT_POLL])
            .stdin(Stdio::piped())
            .spawn();
        let keeper = keeper.map_err(|error| format!("sh: {error}"))?;
        let set = Self { keeper };
        let value = HALT_POLL_NS.to_string();
        fs::write(HALT_POLL, value).map_err(|e| format!("{HALT_POLL}: {e}; only root may"))?;
        Ok(set)
    }
}

impl Drop for HaltPoll {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // The result does not matter: the keeper fails only where setting the value failed.
        let _ended = self.keeper.wait();
    }
}

/// Returns how many packets a host's interface has received and sent.
pub(crate) fn arrived_and_sent(host: &Host) -> Result<(u64, u64), String> {
    let output = host.command("cat").arg("/proc/net/dev").output();
    let output = output.map_err(|error| format!("cat: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("e0:"))
        .ok_or("no e0 in /proc/net/dev")?;
    let values: Vec<u64> = line
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    match values.as_slice() {
        [_, received, _, _, _, _, _, _, _, sent, ..] => Ok((*received, *sent)),
        _ => Err(format!("strange line in /proc/net/dev: {line}")),
    }
}

/// The machine's clock ticks since boot, summed over its cores.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ticks {
    busy: u64,
    steal: u64,
    all: u64,
}

impl Ticks {
    /// Reads `/proc/stat`. Kernel work that belongs to no process counts as busy.
    pub(crate) fn read() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let values: Vec<u64> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .filter_map(|text| text.parse().ok())
            .collect();
        let at = |index: usize| values.get(index).copied().unwrap_or(0);
        let all = values.iter().take(8).sum();
        Self {
            busy: all - at(3) - at(4) - at(7),
            steal: at(7),
            all,
        }
    }

    /// Returns the busy seconds between `earlier` and this reading.
    pub(crate) fn busy_seconds_since(self, earlier: Self) -> f64 {
        (self.busy - earlier.busy) as f64 / TICKS_PER_SECOND
    }

    /// Returns the share of the time since `earlier`, in thousandths, that the hypervisor took.
    pub(crate) fn steal_permille_since(self, earlier: Self) -> u64 {
        let all = self.all - earlier.all;
        let steal = self.steal - earlier.steal;
        (steal * 1000).checked_div(all).unwrap_or(0)
    }
}

/// Waits, at most [`CALM_WAIT_MAX`], until the hypervisor takes no more than
/// [`STEAL_PERMILLE_MAX`]: first from threads that compute, then from threads that sleep and wake
/// up.
pub(crate) fn await_calm() {
    let give_up = Instant::now() + CALM_WAIT_MAX;
    while Instant::now() < give_up {
        if steal_permille_of(|| ()) <= STEAL_PERMILLE_MAX
            && steal_permille_of(|| thread::sleep(NAP)) <= STEAL_PERMILLE_MAX
        {
            return;
        }
        thread::sleep(CALM_PAUSE);
    }
}

/// Runs `what` again and again on all processors for a second. Returns the share of that time, in
/// thousandths, that the hypervisor took.
fn steal_permille_of(what: impl Fn() + Sync) -> u64 {
    let before = Ticks::read();
    let probed = Instant::now() + PROBE;
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while Instant::now() < probed {
                    what();
                }
            });
        }
    });
    Ticks::read().steal_permille_since(before)
}

const GOVERNOR: &str = "/sys/devices/system/cpu/cpuidle/current_governor";
const HALT_POLL: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
/// The kernel's default, from `drivers/cpuidle/governors/haltpoll.c`.
const HALT_POLL_NS: u64 = 200_000;
/// A shell script that waits until the bench ends, and then restores the setting.
const KEEP: &str = r#"trap "" INT TERM HUP; read -r _; [ -w "$2" ] && echo "$1" > "$2""#;
/// A run does not count when the hypervisor took more than this share of the time, in thousandths.
pub(crate) const STEAL_PERMILLE_MAX: u64 = 10;
const PROBE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_micros(100);
const CALM_PAUSE: Duration = Duration::from_secs(3);
/// A busy neighbour is often gone after seconds. When it stays longer, the bench runs out of tries
/// and says so.
const CALM_WAIT_MAX: Duration = Duration::from_secs(20);
/// USER_HZ is 100 on every Linux architecture that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;
