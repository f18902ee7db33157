//! Which program reads a file of a gigabyte fastest.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use super::{Scratch, keep, tool::is_installed};
use crate::{program, turns::undisturbed};

/// Measures, and returns the tables over `pairs` rounds: for a file of mixed frames, and for a file
/// of the smallest frames.
pub(super) fn run(scratch: &Scratch, pairs: usize) -> Result<String, String> {
    let mut text = String::new();
    for (sizes, count, what) in [
        ("60-1514", 1_250_000_u64, "64 to 1518 B frames"),
        ("60", 13_200_000, "64 B frames"),
    ] {
        let file = scratch.file("large.pcap");
        let mut make = Command::new(program::ours()?);
        let sink = format!("pcap:{}", file.display());
        let source = format!("gen:size={sizes},count={count}");
        program::complete(make.args(["capture", &source, "-o", &sink, "--quiet"]))?;
        text += &of_one_file(&file, pairs, what)?;
        text.push('\n');
    }
    Ok(text)
}

fn of_one_file(file: &Path, pairs: usize, what: &str) -> Result<String, String> {
    let ours = program::ours()?;
    let command = |program: &Path, before: &[&str], file: String| {
        let mut command = Command::new(program);
        command.args(before).arg(file);
        command
    };
    let stats_of = |words: &[&str]| {
        command(
            &ours,
            &[&["stats", "--quiet"], words].concat(),
            format!("pcap:{}", file.display()),
        )
    };
    let stats = || stats_of(&[]);
    let rows: [(&str, &dyn Fn() -> Command); 6] = [
        ("towline stats", &stats),
        ("tracestats", &|| {
            command(
                Path::new("tracestats"),
                &[],
                format!("pcapfile:{}", file.display()),
            )
        }),
        ("capinfos, no hashes", &|| {
            // capinfos prints everything that it prints by default, except the hashes.
            let wanted = [
                "-t", "-E", "-c", "-s", "-d", "-u", "-a", "-e", "-y", "-i", "-z", "-x",
            ];
            command(Path::new("capinfos"), &wanted, file.display().to_string())
        }),
        // `--summary` counts what capinfos counts, and nothing else.
        ("towline stats --summary", &|| stats_of(&["--summary"])),
        ("towline capture, to null:", &|| {
            command(
                &ours,
                &["capture", "--quiet"],
                format!("pcap:{}", file.display()),
            )
        }),
        ("towline stats (again)", &stats),
    ];
    let mut results: Vec<(String, Vec<f64>)> = rows
        .iter()
        .map(|(name, _)| ((*name).to_owned(), Vec::new()))
        .collect();
    for pair in 1..=pairs {
        for ((name, command), (_, times)) in rows.iter().zip(&mut results) {
            let seconds = undisturbed("reading", name, || reading_time(command()))?;
            eprintln!("pair {pair} {name}: {seconds:.3} s");
            times.push(seconds);
        }
    }
    let title = format!("reading 1 GB of {what} from the page cache, {pairs} pairs");
    keep(&title, "s", 3, &results)
}

/// Returns the seconds until `command` ends; NaN when the program is not installed.
fn reading_time(mut command: Command) -> Result<f64, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    if !program.contains('/') && !is_installed(&program) {
        return Ok(f64::NAN);
    }
    let begun = Instant::now();
    program::complete(command.stdout(Stdio::null()))?;
    Ok(begun.elapsed().as_secs_f64())
}
