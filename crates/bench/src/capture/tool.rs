//! The capture programs: how each is started, and where it prints its counts.

use std::{path::Path, process::Command};

use lab::Host;

use crate::program::{self, number_after};

/// One program that captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    /// Towline, with the name of one of its sources.
    Towline(&'static str),
    Tcpdump,
    Dumpcap,
    NetsniffNg,
    Tracestats,
}

/// What a capture does with the packets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keep<'a> {
    /// Counts them.
    Nothing,
    /// Writes them to a file: as pcapng when the program can.
    File(&'a Path),
}

/// The counts that a capture printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) received: u64,
    pub(super) dropped: u64,
}

impl Tool {
    /// Returns all installed programs, ours first.
    pub(super) fn all() -> Vec<Self> {
        let rivals = [
            Self::Tcpdump,
            Self::Dumpcap,
            Self::NetsniffNg,
            Self::Tracestats,
        ];
        let (there, missing): (Vec<Self>, Vec<Self>) = rivals
            .into_iter()
            .partition(|tool| is_installed(tool.program()));
        for tool in missing {
            let package = tool.package();
            eprintln!(
                "skipped: {} is not installed (Debian: {package})",
                tool.program()
            );
        }
        [vec![Self::Towline("ring")], there].concat()
    }

    /// Returns Towline with the source `xdp:`, which takes frames away from the host; `None` when
    /// the kernel refuses that source.
    pub(super) fn taking(host: &Host) -> Result<Option<Self>, String> {
        let mut command = host.command(program::ours()?);
        command.args(["capture", "xdp:e0", "--for", "1ms", "--quiet"]);
        let output = command
            .output()
            .map_err(|error| format!("towline: {error}"))?;
        if output.status.success() {
            return Ok(Some(Self::Towline("xdp")));
        }
        eprint!("skipped: {}", String::from_utf8_lossy(&output.stderr));
        Ok(None)
    }

    /// Returns the row's title.
    pub(super) fn name(self) -> String {
        match self {
            Self::Towline(source) => format!("towline {source}:"),
            Self::Tracestats => "tracestats ring: (its own size)".to_owned(),
            rival => rival.program().to_owned(),
        }
    }

    const fn program(self) -> &'static str {
        match self {
            Self::Towline(_) => "towline",
            Self::Tcpdump => "tcpdump",
            Self::Dumpcap => "dumpcap",
            Self::NetsniffNg => "netsniff-ng",
            Self::Tracestats => "tracestats",
        }
    }

    const fn package(self) -> &'static str {
        match self {
            Self::Towline(_) => "",
            Self::Tcpdump => "tcpdump",
            Self::Dumpcap => "wireshark-common",
            Self::NetsniffNg => "netsniff-ng",
            Self::Tracestats => "libtrace-tools",
        }
    }

    /// Returns true for programs that can write what they capture.
    pub(super) const fn writes(self) -> bool {
        !matches!(self, Self::Tracestats)
    }

    /// Returns the smallest ring that the program takes, in bytes: libpcap counts in KiB, dumpcap
    /// in MiB.
    pub(super) const fn ring_bytes_least(self) -> usize {
        match self {
            Self::Towline(_) | Self::NetsniffNg => 16 << 10,
            Self::Tcpdump => 1 << 10,
            Self::Dumpcap | Self::Tracestats => 1 << 20,
        }
    }

    /// Makes the command that runs the program on `host` with a ring of `ring_bytes`.
    pub(super) fn command(
        self,
        host: &Host,
        ring_bytes: usize,
        keep: Keep<'_>,
    ) -> Result<Command, String> {
        let file = match keep {
            Keep::Nothing => Path::new("/dev/null"),
            Keep::File(path) => path,
        };
        let mut command = match self {
            Self::Towline(_) => host.command(program::ours()?),
            rival => host.command(rival.program()),
        };
        match self {
            Self::Towline(source) => {
                command.args(["capture", &format!("{source}:e0"), "--json", "--quiet"]);
                command.args(["--ring", &ring_bytes.to_string(), "-o"]);
                match keep {
                    Keep::Nothing => command.arg("null:"),
                    Keep::File(path) => command.arg(format!("pcapng:{}", path.display())),
                };
            }
            Self::Tcpdump => {
                let kib = (ring_bytes >> 10).to_string();
                command
                    .args(["-i", "e0", "-n", "-Z", "root", "-B", &kib, "-w"])
                    .arg(file);
            }
            Self::Dumpcap => {
                let mib = (ring_bytes >> 20).max(1).to_string();
                command.args(["-i", "e0", "-q", "-B", &mib, "-w"]).arg(file);
            }
            Self::NetsniffNg => {
                let kib = format!("{}KiB", ring_bytes >> 10);
                command.args(["--in", "e0", "--silent", "--ring-size", &kib]);
                if let Keep::File(path) = keep {
                    command.arg("--out").arg(path);
                }
            }
            Self::Tracestats => {
                command.arg("ring:e0");
            }
        }
        Ok(command)
    }

    /// Reads the counts in the program's output.
    pub(super) fn counted(self, text: &str) -> Result<Counted, String> {
        let none = || format!("{}: no figures in {text}", self.program());
        let before = |words: &str| -> Option<u64> {
            let line = text.lines().find(|line| line.contains(words))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let (received, dropped) = match self {
            Self::Towline(_) => {
                let report: serde_json::Value =
                    serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))?;
                let at = |value: &serde_json::Value| value.as_u64();
                if report["residual"] != 0 {
                    return Err(format!("the counts of packets do not add up: {text}"));
                }
                (at(&report["delivered"]), at(&report["lost"]["ring"]))
            }
            Self::Tcpdump => (before("packets captured"), before("dropped by kernel")),
            Self::Dumpcap => {
                let key = "Packets received/dropped on interface 'e0': ";
                let rest = text.find(key).map(|at| &text[at + key.len()..]);
                let pair = rest.and_then(|rest| rest.split([' ', '\n']).next());
                let pair = pair.and_then(|pair| pair.split_once('/'));
                let (received, dropped) = pair.ok_or_else(none)?;
                (received.parse().ok(), dropped.parse().ok())
            }
            Self::NetsniffNg => (
                before("packets passed filter"),
                before("packets failed filter"),
            ),
            Self::Tracestats => {
                let after = |words: &str| number_after(text, words).map(|count| count as u64);
                (after("Total:"), after("Dropped packets:"))
            }
        };
        let (received, dropped) = received.zip(dropped).ok_or_else(none)?;
        Ok(Counted { received, dropped })
    }
}

/// Returns the rivals' versions, in one line.
pub(super) fn versions() -> String {
    let packages = [
        "tcpdump",
        "libpcap0.8",
        "wireshark-common",
        "netsniff-ng",
        "libtrace-tools",
        "tcpreplay",
    ];
    let output = Command::new("dpkg-query")
        .args(["-W", "-f=${Package} ${Version}, "])
        .args(packages)
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    match text.trim_end_matches(", ") {
        "" => "of unknown versions (no dpkg here)".to_owned(),
        versions => versions.to_owned(),
    }
}

/// Returns true when a program of that name can be started.
pub(super) fn is_installed(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", "command -v \"$0\"", program])
        .output();
    found.is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_what_each_says() {
        let texts = [
            (
                Tool::Tcpdump,
                "tcpdump: listening on e0\n7 packets captured\n9 packets received by filter\n\
                 2 packets dropped by kernel\n",
            ),
            (
                Tool::Dumpcap,
                "Capturing on 'e0'\nFile: /tmp/x\nPackets captured: 7\nPackets received/dropped \
                 on interface 'e0': 7/2 (pcap:2/dumpcap:0/flushed:0/ps_ifdrop:0) (77.8%)\n",
            ),
            (
                Tool::NetsniffNg,
                "\n           9  packets incoming (0 unread on exit)\n           7  packets passed \
                 filter\n           2  packets failed filter (out of space)\n",
            ),
            (
                Tool::Tracestats,
                "filter\tcount\n   Total:\t  7\t  420\nring:e0:\n   Dropped packets:\t  2\n",
            ),
            (
                Tool::Towline("ring"),
                "{\"residual\": 0, \"delivered\": 7, \"lost\": {\"ring\": 2}}",
            ),
        ];
        for (tool, text) in texts {
            let expected = Counted {
                received: 7,
                dropped: 2,
            };
            assert_eq!(tool.counted(text), Ok(expected), "{tool:?}");
        }
        assert!(Tool::Towline("ring").counted("{\"residual\": 3}").is_err());
    }
}
