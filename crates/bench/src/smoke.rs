//! Makes each kind of measurement once, for a second and with Towline alone, so that no bench
//! breaks unnoticed: the programs still start, the reports still have the expected figures, and
//! everything arrives. Nothing is compared or timed. Rivals and the yardsticks in C are compiled
//! where their libraries are installed. The erasure codes of `bench/rivals` have a test of their
//! own, which `cargo xtask ci` runs.

use std::{fs, path::Path};

use lab::{Lab, LabSpec};

use crate::{
    capture, files,
    matrix::Case,
    peer::{Peer, Towline},
    program, rate, round_trips, tail, tcp, udp,
};

#[test]
fn each_kind_of_measurement_runs_and_reads_its_reports() {
    lab::isolated(|| {
        let Some(program) = program::beside_this_test() else {
            return;
        };
        program::standing_in(&program, || {
            over_a_cable().unwrap();
            over_a_switch().unwrap();
        });
    });
}

fn over_a_cable() -> Result<(), String> {
    let lab = Lab::new(&LabSpec::new(2).direct()).map_err(|error| error.to_string())?;
    whole(&Towline::new(1400)?, &lab)?;
    whole(&Towline::packed(64)?, &lab)?;
    whole(&Towline::keyed(1400)?, &lab)?;
    for (load, measure) in round_trips::over_pgm_alone(&lab) {
        positive(&load, measure()?)?;
    }
    let one = files::Load::make("tcp", 1, 3_000_000)?.for_one_receiver();
    whole(&tcp::ours(&one), &lab)?;
    positive("udp", udp::alone(&lab)?)?;
    positive("capture", [capture::counting_cost(&lab)?])
}

fn over_a_switch() -> Result<(), String> {
    let lab = Lab::new(&LabSpec::new(4).segments_at_switch()).map_err(|error| error.to_string())?;
    let one = files::Load::make("one", 1, 3_000_000)?;
    whole(&files::Ours::files("one file", &one), &lab)?;
    whole(&files::Ours::keyed("one file with a key", &one)?, &lab)?;
    let many = files::Load::make("many", 20, 4096)?;
    whole(&files::Ours::directory("a directory", &many), &lab)?;
    drop(lab);
    positive("rate", [rate::alone()?])
}

#[test]
fn delays_with_losses_are_measured() {
    lab::isolated(|| {
        let Some(program) = program::beside_this_test() else {
            return;
        };
        let lab = Lab::new(&LabSpec::new(4).segments_at_switch()).unwrap();
        if let Err(error) = lab.host(1).set_loss(1, 1000) {
            println!("skipped: {error}");
            return;
        }
        program::standing_in(&program, || {
            positive("tail", tail::alone(&lab).unwrap()).unwrap();
        });
    });
}

#[test]
fn messages_with_losses_and_parity_are_counted() {
    lab::isolated(|| {
        let Some(program) = program::beside_this_test() else {
            return;
        };
        let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).unwrap();
        if let Err(error) = lab.host(1).set_loss(1, 100) {
            println!("skipped: {error}");
            return;
        }
        let case = Case {
            size: 1400,
            receivers: 1,
            lost_permille: Some(10),
        };
        program::standing_in(&program, || {
            case.set_loss(&lab).unwrap();
            let way = case.towline("parity", &["--fec-group", "64"]).unwrap();
            let sample = whole(&way, &lab).unwrap();
            assert!(sample > 0.0, "nothing was repaired");
        });
    });
}

#[test]
fn the_yardsticks_compile() {
    fs::create_dir_all(program::root().join("target")).unwrap();
    for source in ["udplimit.c", "udppong.c", "udptail.c", "naptail.c"] {
        program::compile(source, &[]).unwrap();
    }
    let rivals = [
        ("pgmbench.c", "openpgm-5.3", "libpgm-dev"),
        ("zmqbench.c", "libzmq", "libzmq3-dev"),
        ("normbench.cpp", "norm", "libnorm-dev"),
    ];
    for (source, package, debian) in rivals {
        if let Err(text) = program::compile_with(source, package, debian) {
            assert!(text.contains("is not installed"), "{text}");
        }
    }
    assert!(
        Path::new(&program::root())
            .join("bench/AeronBench.java")
            .exists()
    );
}

/// Makes a run in which everything must arrive; returns the repairs for 1,000 packets.
fn whole(peer: &dyn Peer, lab: &Lab) -> Result<f64, String> {
    let sample = peer.run(lab)?;
    let name = peer.name();
    if sample.missing > 0 {
        return Err(format!("{name}: {} missing", sample.missing));
    }
    positive(name, [sample.rate_per_s, sample.bytes])?;
    Ok(sample.repairs_permille)
}

/// Checks that all figures are above zero: a figure that the report lacks is 0 or NaN.
fn positive<const N: usize>(what: &str, figures: [f64; N]) -> Result<(), String> {
    match figures
        .into_iter()
        .find(|figure| !(figure.is_finite() && *figure > 0.0))
    {
        None => Ok(()),
        Some(figure) => Err(format!("{what}: {figure}")),
    }
}
