//! Aeron, with its media driver inside each program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use lab::{Host, Lab};

use super::{Peer, run_pair};
use crate::{
    program::{self, number_after},
    sample::Sample,
};

/// Aeron in Java, shared threading mode: two cores cannot hold dedicated threads at both ends.
#[derive(Debug)]
pub(crate) struct Aeron {
    class_path: String,
    size: usize,
}

impl Aeron {
    /// Fetches the library by Maven when it is not there yet.
    pub(crate) fn new(size: usize) -> Result<Self, String> {
        let class_path = Self::class_path()?;
        Ok(Self { class_path, size })
    }

    /// Compiles the yardstick. Returns a class path with the yardstick and the library.
    pub(crate) fn class_path() -> Result<String, String> {
        let jar = jar()?;
        let classes = program::root().join("target/aeron");
        fs::create_dir_all(&classes).map_err(|e| format!("{}: {e}", classes.display()))?;
        let mut compile = Command::new("javac");
        compile.arg("-cp").arg(&jar).arg("-d").arg(&classes);
        program::complete(compile.arg(program::root().join("bench/AeronBench.java")))?;
        Ok(format!("{}:{}", jar.display(), classes.display()))
    }

    fn command(&self, host: &Host, mode: &str, channel: &str, seconds: &str) -> Command {
        let mut command = host.command("java");
        command.args(["--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED", "-cp"]);
        let size = self.size.to_string();
        command.args([
            &self.class_path,
            "AeronBench",
            mode,
            channel,
            &size,
            seconds,
        ]);
        command
    }
}

impl Peer for Aeron {
    fn name(&self) -> &'static str {
        "Aeron 1.44 (Java, shared)"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let address = |host: usize| lab.host(host).ipv4();
        let channel = |host| format!("aeron:udp?endpoint={ENDPOINT}|interface={}", address(host));
        let mut recv = self.command(lab.host(1), "recv", &channel(1), "8");
        let sender = format!("{}|fc=min", channel(0));
        let mut send = self.command(lab.host(0), "send", &sender, "3");
        let (sent, received, mut sample) = run_pair(&mut recv, &mut send)?;
        let number = |text: &str, key: &str| {
            number_after(text, key).ok_or_else(|| format!("no '{key}' in Aeron's output"))
        };
        let got = number(&received, "received")?;
        sample.rate_per_s = number(&received, "rate")?;
        sample.bytes = got * self.size as f64;
        let missing = number(&sent, "sent")? - got + number(&received, "breaks")?;
        sample.missing = missing.abs() as u64;
        Ok(sample)
    }
}

fn jar() -> Result<PathBuf, String> {
    let name = format!("aeron-all-{VERSION}.jar");
    let jar = program::root().join("target").join(&name);
    if !jar.exists() {
        let artifact = format!("io.aeron:aeron-all:{VERSION}");
        let mut maven = Command::new("mvn");
        maven.args(["-q", "dependency:copy", "-Dmdep.useBaseVersion=true"]);
        maven.arg(format!("-Dartifact={artifact}"));
        let out = jar.parent().unwrap_or_else(|| Path::new("."));
        maven.arg(format!("-DoutputDirectory={}", out.display()));
        program::complete(&mut maven)?;
    }
    Ok(jar)
}

const VERSION: &str = "1.44.1";
/// Aeron demands that the last octet of a group address is odd.
const ENDPOINT: &str = "239.192.7.1:40457";
