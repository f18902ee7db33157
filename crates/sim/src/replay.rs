//! Records failed runs: runs the seed once more with recording on, and writes trace and pcap.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Plan, Report, run, run_recorded};

/// The files of a recorded run.
#[derive(Clone, Debug)]
pub struct Records {
    /// A line for everything that happened.
    pub trace: PathBuf,
    /// The datagrams, for tcpdump and Wireshark.
    pub pcap: PathBuf,
}

/// Runs `plan` with `seed`; when it fails, records it into `dir`. `again` are the arguments of
/// towline-sim that run this plan, up to the seed, such as `--trees --seed`.
///
/// # Errors
/// When the run fails: the text says what failed, and with which command to run the seed again.
pub fn must_hold(plan: &Plan, seed: u64, again: &str, dir: &Path) -> Result<Report, String> {
    let report = run(plan, seed).map_err(|error| format!("{}: {error}", plan.name))?;
    if report.is_good() {
        return Ok(report);
    }
    let kept = match record(plan, seed, dir) {
        Ok(records) => format!("{} and {}", records.trace.display(), records.pcap.display()),
        Err(error) => format!("not recorded: {error}"),
    };
    let command = format!("cargo run -p towline-sim -- {again} {seed}");
    Err(format!(
        "{report}\n    again: {command}\n    {kept}\n    {plan:?}"
    ))
}

/// Runs the plan that `plan_of` makes of each seed, with that seed.
///
/// **Panics**: when a run fails; the text names its seed and the command that repeats it. `again`
/// are the arguments of this command up to the seed.
pub fn all_must_hold(
    seeds: std::ops::Range<u64>,
    plan_of: fn(u64) -> Plan,
    again: &str,
    dir: &Path,
) {
    let failed: Vec<String> = seeds
        .filter_map(|seed| must_hold(&plan_of(seed), seed, again, dir).err())
        .collect();
    assert!(
        failed.is_empty(),
        "{} seeds failed\n{}",
        failed.len(),
        failed.join("\n\n")
    );
}

/// Runs `plan` with `seed` and writes its records into `dir`.
///
/// # Errors
/// When the plan is wrong or the files cannot be written.
#[expect(
    clippy::disallowed_methods,
    reason = "the record of a run is two files; the run itself touches none"
)]
pub fn record(plan: &Plan, seed: u64, dir: &Path) -> io::Result<Records> {
    let (report, trace) = run_recorded(plan, seed).map_err(io::Error::other)?;
    fs::create_dir_all(dir)?;
    let stem: String = plan
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let records = Records {
        trace: dir.join(format!("{stem}-{seed}.txt")),
        pcap: dir.join(format!("{stem}-{seed}.pcap")),
    };
    fs::write(
        &records.trace,
        format!("{plan:#?}\n\n{report}\n\n{}", trace.text()),
    )?;
    fs::write(&records.pcap, trace.pcap())?;
    Ok(records)
}
