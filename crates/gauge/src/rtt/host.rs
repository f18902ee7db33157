//! The facts about a machine that belong in its results.

use std::{fs, net::IpAddr, path::Path};

use measure::{Link, raw::Host};
use net::Interfaces;

/// Describes this machine as far as it affects times. **Cost**: reads a dozen files of `/proc` and
/// `/sys`.
#[must_use]
pub fn host() -> Host {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown processor", |(_, name)| name.trim());
    let version = text("/proc/sys/kernel/version").unwrap_or_default();
    Host {
        name: sys::host_name().unwrap_or_default(),
        kernel: text("/proc/sys/kernel/osrelease").unwrap_or_default(),
        preemption: preemption(&version, text("/sys/kernel/debug/sched/preempt").as_deref()),
        processor: processor.to_owned(),
        // This counts the machine's processors, even when the calling thread is bound to one of
        // them.
        cpu_count: (0..)
            .zip(cpuinfo.lines().filter(|line| line.starts_with("processor")))
            .fold(0, |_, (index, _)| index + 1),
        clock_source: text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .unwrap_or_default(),
        governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }
}

/// Returns name, driver and link of the interface that has the address `local`.
#[must_use]
pub fn link_of(local: IpAddr) -> Option<(String, Option<String>, Option<Link>)> {
    let all = Interfaces::read().ok()?;
    let name = all.with_address(local)?.name.clone();
    let home = Path::new("/sys/class/net").join(&name);
    let number = |file: &str| text(home.join(file))?.parse::<i64>().ok();
    let driver = fs::read_link(home.join("device/driver"))
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    // A negative speed means "unknown"; for some devices the file cannot even be read.
    let speed = number("speed").and_then(|speed| u64::try_from(speed).ok());
    let mtu_bytes = number("mtu").and_then(|mtu| u32::try_from(mtu).ok());
    let link = speed.zip(mtu_bytes).map(|(speed, mtu_bytes)| Link {
        bits_per_s: speed * 1_000_000,
        mtu_bytes,
    });
    Some((name, driver, link))
}

/// Returns the kernel's preemption model: the one in force where the kernel tells it, otherwise the
/// one with which the kernel was built.
fn preemption(version: &str, dynamic: Option<&str>) -> String {
    let chosen = dynamic.and_then(|text| text.split_once('(')?.1.split_once(')'));
    if let Some((chosen, _)) = chosen {
        return chosen.to_owned();
    }
    let words: Vec<&str> = version.split_whitespace().collect();
    let models = [
        ("PREEMPT_RT", "rt"),
        ("PREEMPT_DYNAMIC", "dynamic, not readable which"),
        ("PREEMPT_LAZY", "lazy"),
        ("PREEMPT", "full"),
    ];
    let known = models.iter().find(|(word, _)| words.contains(word));
    known
        .map_or("none or voluntary", |(_, model)| model)
        .to_owned()
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preemption_models_are_told_apart() {
        let models = [
            "#1 SMP PREEMPT_DYNAMIC Tue",
            "#1 SMP PREEMPT_RT Tue",
            "#1 SMP Tue",
        ]
        .map(|version| preemption(version, None));
        assert_eq!(
            models,
            ["dynamic, not readable which", "rt", "none or voluntary"]
        );
        let dynamic = Some("none voluntary (full) lazy");
        assert_eq!(preemption("#1 SMP PREEMPT_DYNAMIC", dynamic), "full");
        assert!(!host().kernel.is_empty());
    }
}
