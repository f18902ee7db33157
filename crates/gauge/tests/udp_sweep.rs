//! Sweeps between hosts of the lab: a limited link is found, losses are told by their cause, and a
//! group reaches several servers.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "a test says why it is skipped")]

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use lab::{Lab, LabSpec, isolated};
use measure::Format;
use towline_gauge::udp::{
    Direction, Flow, Limit, Load, Mode, PORT, Profile, ServeSpec, Server, Sweep, SweepReport, draw,
};

mod middle;
use middle::did;

fn never() -> bool {
    false
}

fn sweep(servers: Vec<IpAddr>) -> Sweep {
    Sweep {
        servers: servers.into_iter().map(|ip| (ip, PORT).into()).collect(),
        group: None,
        interface: None,
        hops: 1,
        sizes: vec![1_000],
        modes: vec![Mode::One],
        profiles: vec![Profile::Tuned],
        directions: vec![Direction::There],
        load: None,
        duration: Duration::from_millis(500),
        loss_max_share: 0.001,
        seed: 1,
    }
}

/// Runs `sweep` on the first host beside a server on each of the others.
fn swept(lab: &Lab, sweep: &Sweep) -> SweepReport {
    let stop = AtomicBool::new(false);
    let servers: Vec<Server> = lab.hosts()[1..]
        .iter()
        .map(|host| {
            let any: IpAddr = if sweep.servers[0].is_ipv6() {
                std::net::Ipv6Addr::UNSPECIFIED.into()
            } else {
                Ipv4Addr::UNSPECIFIED.into()
            };
            let listen = SocketAddr::new(any, PORT);
            let mut spec = ServeSpec::new(listen);
            spec.groups.extend(sweep.group);
            let opened = host.enter(|| Server::open(spec));
            opened.unwrap().unwrap()
        })
        .collect();
    thread::scope(|scope| {
        let stop = &stop;
        for (server, host) in servers.iter().zip(&lab.hosts()[1..]) {
            // The trials' sockets are opened by the server's threads: these must be on its host.
            scope.spawn(move || {
                let is_stopped = || stop.load(Ordering::Relaxed);
                let served = host.enter(|| server.run(&is_stopped, &mut |_| {}));
                served.unwrap().unwrap();
            });
        }
        let found = lab.host(0).enter(|| sweep.run(&never, &mut |_| {}, None));
        stop.store(true, Ordering::Relaxed);
        found.unwrap().unwrap()
    })
}

#[test]
fn a_server_that_starts_a_moment_later_is_met() {
    isolated(|| {
        let mut sweep = sweep(vec![Ipv4Addr::LOCALHOST.into()]);
        sweep.load = Some(Load::Rate(1_000));
        sweep.duration = Duration::from_millis(100);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                let listen = sweep.servers[0];
                let server = Server::open(ServeSpec::new(listen)).unwrap();
                let is_stopped = || stop.load(Ordering::Relaxed);
                server.run(&is_stopped, &mut |_| {}).unwrap();
            });
            let found = sweep.run(&never, &mut |_| {}, None);
            stop.store(true, Ordering::Relaxed);
            assert!(found.unwrap().rows[0].flows[0].receipt.received > 0);
        });
    });
}

const TRIES: usize = 10;
/// A receiver that begins later than this finds a queue, and with it a rate that no link had. It
/// and the bucket's 5 ms are less than 3 % of a trial.
const LATE_NS: u64 = 6_000_000;
/// Whole Ethernet frames of datagrams of 1,000 bytes, without preamble: what TBF counts.
const FRAME_BITS: f64 = (1_000 + 28 + 14) as f64 * 8.0;

/// What a flow is of a link of `bits_per_s`.
fn share(flow: &Flow, bits_per_s: f64) -> f64 {
    flow.received_per_s * FRAME_BITS / bits_per_s
}

/// Whether other work on this machine kept the receiver from the first datagrams: it then counted
/// for a shorter time than the sender sent, and its rate says nothing.
const fn is_disturbed(flow: &Flow) -> bool {
    flow.receipt.lasted_ns + LATE_NS < flow.dispatch.lasted_ns
}

#[test]
fn a_limited_link_is_found_within_three_percent() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        // A bucket of 5 ms, which late timers do not empty, and a queue of 8 ms: both short against
        // a trial.
        let limited = "qdisc add dev e0 root tbf rate 50mbit burst 30000 limit 50000";
        if !did(lab.host(0).namespace(), "tc", limited) {
            return;
        }
        let mut sweep = sweep(vec![lab.host(1).ipv4().into()]);
        for (mode, profile) in [
            (Mode::One, Profile::Standard),
            (Mode::Batch, Profile::Tuned),
        ] {
            (sweep.modes, sweep.profiles) = (vec![mode], vec![profile]);
            sweep.duration = Duration::from_millis(600);
            // Others use this machine: a sender that is held up all the time finds less, and tries
            // again. More than the link nobody finds who counted all the time.
            let is_found = (0..TRIES).any(|_| {
                let report = swept(&lab, &sweep);
                let row = &report.rows[0];
                let share = share(&row.flows[0], 50e6);
                if is_disturbed(&row.flows[0]) {
                    return false;
                }
                assert!(share <= 1.03, "{share} of the link: {row:?}");
                share >= 0.97 && row.limit == Limit::SenderInterface
            });
            assert!(is_found, "{mode:?}: never within 3 % below the link's rate");
        }
        // The other direction is not limited, and that is a finding.
        (sweep.directions, sweep.sizes) = (vec![Direction::There, Direction::Back], vec![1_000]);
        let is_told = (0..TRIES).any(|_| {
            let report = swept(&lab, &sweep);
            assert!(report.rows[1].flows[0].is_back);
            let mut remarks = report.remarks.iter();
            remarks.any(|it| it.contains("the directions differ"))
        });
        assert!(is_told, "never told that the directions differ");
    });
}

#[test]
fn losses_are_told_by_their_cause() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let mut sweep = sweep(vec![lab.host(1).ipv4().into()]);
        // Half of all packets vanish before the socket.
        lab.host(1).set_loss(1, 2).unwrap();
        (sweep.load, sweep.duration) = (Some(Load::Rate(2_000)), Duration::from_millis(300));
        let report = swept(&lab, &sweep);
        let flow = &report.rows[0].flows[0];
        let (sent, losses) = (flow.dispatch.sent, flow.losses);
        assert!(sent >= 300 && losses.in_network > sent / 4, "{flow:?}");
        assert_eq!(
            losses.at_socket + losses.in_reassembly + losses.at_sender,
            0
        );
        assert_eq!(losses.in_network, sent - flow.receipt.received);
        // Every packet passed both interfaces: what was lost, the receiving host lost.
        assert!(
            flow.sender.tx_packets >= sent && flow.receiver.rx_packets >= sent,
            "{flow:?}"
        );
        // Of a datagram in six fragments with a half of them lost, nearly none is whole.
        sweep.sizes = vec![8_192];
        let report = swept(&lab, &sweep);
        let row = &report.rows[0];
        let is_told = row.remarks.iter().any(|it| it.contains("6 fragments"));
        assert!(is_told, "{row:?}");
        assert!(row.flows[0].sender.fragments_made >= 6 * 300, "{row:?}");
    });
}

/// A curve for each way of sending, and a point that tells itself for each flow.
fn is_drawn(report: &SweepReport) {
    let mut picture = Vec::new();
    draw(&mut picture, Format::Svg, report).unwrap();
    let picture = String::from_utf8(picture).unwrap();
    for name in [
        "there, one, tuned",
        "back, gso, tuned",
        "back while both, batch, tuned",
    ] {
        assert!(picture.contains(&format!(">{name}</text>")), "{name}");
        assert!(
            picture.contains(&format!("<title>{name}, 1400 B: ")),
            "{name}"
        );
    }
    let flows: usize = report.rows.iter().map(|row| row.flows.len()).sum();
    let points = picture.matches(" lost, ").count();
    assert_eq!(
        points,
        4 * flows,
        "rate, payload, loss and processor time of each"
    );
    assert!(draw(&mut Vec::new(), Format::Csv, report).is_err());
}

#[test]
fn both_directions_modes_and_ipv6() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let mut servers = vec![IpAddr::from(lab.host(1).ipv4())];
        if lab.host(1).has_ipv6() {
            servers.push(lab.host(1).ipv6().into());
        }
        for server in servers {
            let mut sweep = sweep(vec![server]);
            sweep.sizes = vec![20, 1_400, 9_000];
            sweep.modes = vec![Mode::One, Mode::Batch, Mode::Gso];
            sweep.directions = vec![Direction::There, Direction::Back, Direction::Both];
            (sweep.load, sweep.duration) = (Some(Load::Rate(1_000)), Duration::from_millis(100));
            let report = swept(&lab, &sweep);
            is_drawn(&report);
            assert_eq!(report.rows.len(), 27);
            for row in &report.rows {
                if row.mode == Mode::Gso && row.size_bytes == 9_000 {
                    assert!(row.remarks[0].contains("GSO sends only"), "{row:?}");
                    continue;
                }
                let flows = if row.direction == Direction::Both {
                    2
                } else {
                    1
                };
                assert_eq!(row.flows.len(), flows, "{row:?}");
                for flow in &row.flows {
                    assert_eq!(
                        flow.losses.total(),
                        flow.dispatch.sent - flow.receipt.received
                    );
                    // A busy machine may miss all but one super-packet.
                    assert!(flow.receipt.received > 20, "{row:?}");
                    assert_eq!(flow.receipt.duplicates + flow.receipt.foreign, 0, "{row:?}");
                }
            }
        }
    });
}

#[test]
fn a_group_reaches_every_server() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        lab.host(2).set_loss(1, 4).unwrap();
        let servers = lab.hosts()[1..].iter().map(|host| host.ipv4().into());
        let mut sweep = sweep(servers.collect());
        sweep.group = Some("239.192.7.7:7788".parse().unwrap());
        (sweep.load, sweep.duration) = (Some(Load::Rate(2_000)), Duration::from_millis(300));
        let report = swept(&lab, &sweep);
        assert_eq!(report.servers.len(), 2);
        // The worse of the two is told.
        let flow = &report.rows[0].flows[0];
        assert!(
            flow.receipt.received > 100 && flow.losses.in_network > 50,
            "{flow:?}"
        );
        // One server, both ways through the group.
        sweep.servers.truncate(1);
        sweep.directions = vec![Direction::Both];
        let report = swept(&lab, &sweep);
        let flows = &report.rows[0].flows;
        assert_eq!(flows.len(), 2);
        assert!(
            flows.iter().all(|flow| flow.receipt.received > 100),
            "{flows:?}"
        );
    });
}

#[test]
fn a_second_client_is_told_that_the_server_is_busy() {
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let server = Server::open(ServeSpec::new(listen)).unwrap();
    let (address, stop) = (server.local(), AtomicBool::new(false));
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            server
                .run(&|| stop.load(Ordering::Relaxed), &mut |_| {})
                .unwrap()
        });
        // A client that says nothing holds the place.
        let silent = std::net::TcpStream::connect(address).unwrap();
        let mut second = sweep(Vec::new());
        second.servers = vec![address];
        let error = second
            .run(&never, &mut |_| {}, None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("serves another client"), "{error}");
        drop(silent);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(serving.join().unwrap(), 0);
    });
}

#[test]
fn what_a_server_says_of_itself_commands_no_terminal() {
    let odd = "\u{1b}]0;x\u{7}\u{9b}1m\u{202e}\nfinding  all is well";
    let refusal = serde_json::json!({"refused": {"reason": odd}});
    let welcome = serde_json::json!({
        "welcome": {"version": 1, "name": odd, "interface": odd, "mtu": 1_500},
    });
    let wrong = serde_json::json!({"welcome": {
        "version": 9, "name": odd.repeat(100), "interface": odd, "mtu": 1_500,
    }});
    for (lines, is_told) in [
        (format!("{refusal}\n"), true),
        (format!("{welcome}\n{refusal}\n"), true),
        // Of a server of another version only the version is told.
        (format!("{wrong}\n"), false),
    ] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut second = sweep(Vec::new());
        second.servers = vec![listener.local_addr().unwrap()];
        let error = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(lines.as_bytes()).unwrap();
                // It ends when its client does.
                stream.read_to_end(&mut Vec::new()).unwrap();
            });
            second
                .run(&never, &mut |_| {}, None)
                .unwrap_err()
                .to_string()
        });
        assert_eq!(error.contains("\\u{1b}"), is_told, "{error}");
        assert!(error.chars().all(base::text::is_plain), "{error:?}");
        assert!(error.len() < 700, "{error}");
    }
}

#[test]
fn a_server_counts_the_trials_of_clients_that_follow_each_other_at_once() {
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let server = Server::open(ServeSpec::new(listen)).unwrap();
    let (address, stop) = (server.local(), AtomicBool::new(false));
    let mut sweep = sweep(Vec::new());
    (sweep.servers, sweep.sizes) = (vec![address], vec![64]);
    (sweep.load, sweep.duration) = (Some(Load::Rate(500)), Duration::from_millis(20));
    let served = thread::scope(|scope| {
        let serving = scope.spawn(|| {
            server
                .run(&|| stop.load(Ordering::Relaxed), &mut |_| {})
                .unwrap()
        });
        let mut made = 0;
        while made < 5 {
            // One that comes before the last has left is refused.
            if let Ok(report) = sweep.run(&never, &mut |_| {}, None) {
                made += u64::from(report.rows[0].trials);
            }
        }
        stop.store(true, Ordering::Relaxed);
        serving.join().unwrap()
    });
    assert_eq!(served, 5);
}

#[test]
fn a_server_that_goes_leaves_the_rows_that_were_measured() {
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let server = Server::open(ServeSpec::new(listen)).unwrap();
    let (address, stop) = (server.local(), AtomicBool::new(false));
    let mut sweep = sweep(Vec::new());
    (sweep.servers, sweep.sizes) = (vec![address], vec![64, 128, 256]);
    (sweep.load, sweep.duration) = (Some(Load::Rate(500)), Duration::from_millis(60));
    thread::scope(|scope| {
        scope.spawn(|| {
            server
                .run(&|| stop.load(Ordering::Relaxed), &mut |_| {})
                .unwrap()
        });
        let rows = std::cell::Cell::new(0);
        let mut tell = |_: &str| {
            rows.set(rows.get() + 1);
            stop.store(rows.get() == 2, Ordering::Relaxed);
            // The server looks twenty times a second whether it is to stop.
            thread::sleep(Duration::from_millis(if rows.get() == 2 { 300 } else { 0 }));
        };
        let report = sweep.run(&never, &mut tell, None);
        stop.store(true, Ordering::Relaxed);
        let report = report.unwrap();
        assert_eq!(report.rows.len(), 2, "{report:?}");
        assert!(report.rows.iter().all(|row| row.flows.len() == 1));
        let cut = report.cut.as_ref().unwrap();
        assert!(cut.contains(&address.to_string()), "{cut}");
        let mut picture = Vec::new();
        draw(&mut picture, Format::Svg, &report).unwrap();
        assert!(String::from_utf8(picture).unwrap().contains("CUT SHORT"));
    });
}
