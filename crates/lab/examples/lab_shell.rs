//! Makes a lab and runs a command in one of its hosts, by hand:
//!
//! `cargo run -p towline-lab --example lab_shell -- [--hosts N] [--in I] [--direct] [--segments]
//! [--mtu BYTES] [--loss LOST/OF] [COMMAND [ARGS...]]`
//!
//! Host 0 and `$SHELL` unless told otherwise; `--in all` runs the command in every host at once.
//! The command's exit code is handed on.
#![expect(clippy::print_stderr, reason = "a program for the terminal")]

use std::{env, error::Error, process::ExitCode};

use towline_lab::{Lab, LabSpec, enter_user_namespace_or_explain};

fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("lab_shell: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<u8, Box<dyn Error>> {
    enter_user_namespace_or_explain()?;
    let mut args = env::args().skip(1).peekable();
    let (mut hosts, mut place, mut loss) = (2_u8, "0".to_owned(), None);
    let mut change: Vec<Box<dyn Fn(LabSpec) -> LabSpec>> = Vec::new();
    while let Some(flag) = args.next_if(|arg| arg.starts_with("--")) {
        let mut value = || args.next().ok_or(format!("{flag} needs a value"));
        match flag.as_str() {
            "--hosts" => hosts = value()?.parse()?,
            "--in" => place = value()?,
            "--loss" => loss = Some(value()?),
            "--mtu" => {
                let mtu = value()?.parse()?;
                change.push(Box::new(move |spec| spec.mtu(mtu)));
            }
            "--direct" => change.push(Box::new(LabSpec::direct)),
            "--segments" => change.push(Box::new(LabSpec::segments_at_switch)),
            _ => {
                let known = "--hosts, --in, --loss, --mtu, --direct and --segments";
                return Err(format!("{flag} is not known, only {known} are").into());
            }
        }
    }
    let spec = change
        .iter()
        .fold(LabSpec::new(hosts), |spec, change| change(spec));
    let lab = Lab::new(&spec)?;
    if let Some(loss) = loss {
        let (lost, of) = loss.split_once('/').ok_or("--loss is written 1/1000")?;
        for host in lab.hosts() {
            host.set_loss(lost.parse()?, of.parse()?)?;
        }
    }
    let shell = env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    let program = args.next().unwrap_or(shell);
    let args: Vec<String> = args.collect();
    let chosen = match place.as_str() {
        "all" => lab.hosts(),
        index => {
            let index: usize = index.parse()?;
            lab.hosts().get(index..=index).ok_or(format!(
                "--in {index}: hosts are numbered from 0 below --hosts"
            ))?
        }
    };
    let mut children = Vec::new();
    for host in chosen {
        children.push(host.command(&program).args(&args).spawn()?);
    }
    let mut worst = 0;
    for child in &mut children {
        let code = child.wait()?.code().unwrap_or(1);
        worst = worst.max(u8::try_from(code).unwrap_or(1));
    }
    Ok(worst)
}
