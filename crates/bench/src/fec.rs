//! Compares the erasure code with two widely used crates; `bench/rivals` runs all of them.

use std::process::Command;

use crate::{
    program::{printed, root},
    record,
    sample::{Sample, Series},
    table,
};

/// Measures, and returns the two tables: encoding and decoding.
pub(crate) fn run(pairs: usize) -> Result<String, String> {
    let lines = printed(&mut rivals(pairs))?;
    let mut text = String::new();
    for (work, title) in [
        ("encode", "encode 8 parity packets"),
        ("decode", "recover 8 lost"),
    ] {
        let title = format!("64 packets of 1400 B, {title}, one thread, {pairs} pairs");
        text += &format!("{title}\n");
        let series = series(&lines, work)?;
        text += &table::render(&series, "MB/s");
        let name = format!("fec-{work}");
        record::write(&name, &title, "MB/s", &series, series.len())?;
        text.push('\n');
    }
    Ok(text)
}

/// Makes the command that runs the rivals. They are in a workspace of their own, so that building
/// Towline does not compile them.
fn rivals(pairs: usize) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo.args(["run", "--quiet", "--release", "--locked"]);
    cargo.args(["--manifest-path", "bench/rivals/Cargo.toml"]);
    cargo.args(["--target-dir", "target/rivals", "--"]);
    cargo.arg(pairs.to_string());
    cargo
}

/// Returns the runs of one kind of work: a series for each crate, in the order of the crates' first
/// lines.
fn series(lines: &str, work: &str) -> Result<Vec<Series>, String> {
    let mut all: Vec<Series> = Vec::new();
    for line in lines.lines() {
        let wrong = || format!("bench/rivals: not a run: {line}");
        let fields: Vec<&str> = line.split('\t').collect();
        let [what, name, bytes, seconds] = fields[..] else {
            return Err(wrong());
        };
        if what != work {
            continue;
        }
        let bytes: f64 = bytes.parse().map_err(|_| wrong())?;
        let seconds: f64 = seconds.parse().map_err(|_| wrong())?;
        let at = all.iter().position(|series| series.name == name);
        let at = at.unwrap_or_else(|| {
            all.push(Series::new(name));
            all.len() - 1
        });
        all[at].push(Sample {
            rate_per_s: bytes / 1e6 / seconds,
            cpu_seconds: seconds,
            bytes,
            ..Sample::default()
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_gathered_by_who_did_them() {
        let lines = "encode\ta\t2000000\t2\nencode\tb\t2000000\t1\nencode\ta\t9000000\t1\n\
                     decode\ta\t1\t1\n";
        let all = series(lines, "encode").unwrap();
        let names: Vec<&str> = all.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(all[0].rate(), [1.0, 9.0, 9.0]);
        assert!(series("encode\ta\t1\n", "encode").is_err());
    }
}
