//! How fast `UdpIo` moves runs, without any protocol: the ceiling for everything above it.
//!
//! ```text
//! run_rate recv INTERFACE_INDEX LOCAL GROUP:PORT SECONDS [gro|nogro]
//! run_rate send INTERFACE_INDEX LOCAL GROUP:PORT SECONDS [gso|nogso] BYTES DATAGRAMS [loop]
//! ```
#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use std::{error::Error, time::Duration};

use base::{Io as _, Outcome, PathId, Run, Segments};
use towline_net::{Role, SocketOptions, UdpIo, UdpSetup};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).map_or("", String::as_str);
    let options = SocketOptions::default()
        .gso(argument(5) != "nogso")
        .gro(argument(5) != "nogro")
        .multicast_loop(argument(2) == "127.0.0.1" || argument(8) == "loop");
    let role = match argument(0) {
        "send" => Role::Source,
        _ => Role::Receiver,
    };
    let destination = argument(3).parse()?;
    let setup = UdpSetup::new(
        role,
        destination,
        argument(1).parse()?,
        argument(2).parse()?,
    );
    let mut io = UdpIo::open(setup.options(options))?;
    let duration = Duration::from_secs_f64(argument(4).parse()?);
    match role {
        Role::Source => send(
            &mut io,
            duration,
            argument(6).parse()?,
            argument(7).parse()?,
        ),
        Role::Receiver => receive(&mut io, duration)?,
    }
    while let Some(warning) = io.take_warning() {
        println!("  warning: {warning}");
    }
    Ok(())
}

fn send(io: &mut UdpIo, duration: Duration, datagram_bytes: usize, run_datagrams: usize) {
    let memory = vec![0; datagram_bytes * run_datagrams];
    let to = io.setup().destination;
    let whole = 0..memory.len();
    let run = Run {
        path: PathId(0),
        to,
        hops: None,
        segment: datagram_bytes,
        memory: &memory,
        ranges: std::slice::from_ref(&whole),
    };
    let start = io.now();
    let mut batch = io.batch();
    while io.now() < start + duration {
        // A turn of the run loop looks at the receive side between runs.
        batch.clear();
        let _nothing_comes = io.recv(&mut batch);
        match io.send(&run) {
            Outcome::Sent { .. } => {}
            _ => io.wait(None),
        }
    }
    let seconds = io.now().since(start).as_secs_f64();
    let sent = io.counters().sent_datagrams;
    report("sent", sent, io.counters().sent_bytes, seconds);
    println!("  {:?}", io.counters());
}

fn receive(io: &mut UdpIo, duration: Duration) -> Result<(), Box<dyn Error>> {
    let mut batch = io.batch();
    let end = io.now() + duration;
    let (mut first, mut last, mut seen) = (None, io.now(), 0_u64);
    while io.now() < end {
        batch.clear();
        if io.recv(&mut batch)? == 0 {
            io.wait(Some(end));
            continue;
        }
        last = io.now();
        first.get_or_insert(last);
        for (datagram, bytes) in batch.datagrams() {
            seen += Segments::new(bytes, datagram.segment).count() as u64;
        }
    }
    let seconds = first.map_or(1.0, |first| last.since(first).as_secs_f64().max(1e-9));
    report("received", seen, io.counters().received_bytes, seconds);
    println!("  {:?}", io.counters());
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn report(what: &str, datagrams: u64, bytes: u64, seconds: f64) {
    let (rate, bits) = (datagrams as f64 / seconds, bytes as f64 * 8.0 / seconds);
    println!(
        "{what} {:.3} M/s {:.2} Gbit/s ({datagrams})",
        rate / 1e6,
        bits / 1e9
    );
}
