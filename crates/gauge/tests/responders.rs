//! What a stranger can make the responders do: send to addresses that did not ask, for long, or
//! for nobody else.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabSpec, isolated};
use measure::{CLOCK_BYTES, PROBE_BYTES_MIN, Probe, ProbeKind};
use serde_json::{Value, json};
use towline_gauge::{
    reach::{self, ReachSpec},
    rtt::{Engine, ReflectCounts, ReflectSpec, Reflector, Transport, Wait, reflect_over},
    tcp::{Coalescing, Responder, Writes, WritesReport},
    udp::{PORT, ServeSpec, Server},
};

/// The largest share of bytes towards an address that did not prove itself, per byte that came.
const AMPLIFICATION_MAX: u64 = 3;
const SERVER: usize = 0;
const ATTACKER: usize = 1;
const BYSTANDER: usize = 2;

/// The client of an attacker: it says what it likes.
struct Attacker {
    lines: BufReader<TcpStream>,
    sent_bytes: u64,
}

impl Attacker {
    fn connect(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self {
            lines: BufReader::new(stream),
            sent_bytes: 0,
        }
    }

    fn say(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.sent_bytes += line.len() as u64;
        // The server may have closed the connection: that is an answer, too.
        let _sent = self.lines.get_mut().write_all(line.as_bytes());
    }

    /// The next answer; null when the server has closed the connection.
    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap_or_default();
        serde_json::from_str(&line).unwrap_or_default()
    }

    /// Says hello, and asks for a trial in which the server sends to `group`.
    fn ask(&mut self, group: Option<&str>, change: &Value) -> Value {
        self.say(&json!({"hello": {"version": 1}}));
        let welcome = self.hear();
        if welcome.get("welcome").is_none() {
            return welcome;
        }
        let mut trial = json!({
            "token": 1, "size": 1400, "mode": "gso", "profile": "standard", "rate_per_s": null,
            "duration_ms": 1500, "is_there": false, "is_back": true, "group": group, "hops": 1,
        });
        for (key, value) in change.as_object().into_iter().flatten() {
            trial[key] = value.clone();
        }
        self.say(&json!({ "trial": trial }));
        self.hear()
    }
}

/// Runs `attack` with the server's address, on the attacker's host, beside a server.
fn beside_a_server<T: Send>(
    lab: &Lab,
    listen: IpAddr,
    spec: impl FnOnce(SocketAddr) -> ServeSpec,
    attack: impl FnOnce(SocketAddr) -> T + Send,
) -> T {
    let listen = SocketAddr::new(listen, PORT);
    let (spec, host) = (spec(listen), lab.host(SERVER));
    let server = host.enter(|| Server::open(spec)).unwrap().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let is_stopped = || stop.load(Ordering::Relaxed);
            host.enter(|| server.run(&is_stopped, &mut |_| {}))
                .unwrap()
                .unwrap();
        });
        // The server stops also when the attack panics: the scope waits for it.
        let attack = || catch_unwind(AssertUnwindSafe(|| attack(listen)));
        let result = lab.host(ATTACKER).enter(attack);
        stop.store(true, Ordering::Relaxed);
        result.unwrap().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// The addresses of the server and four groups, for each IP version that the lab has: two that an
/// operator may allow, of any source and of one, and two that no operator may.
fn families(lab: &Lab) -> Vec<(IpAddr, [&'static str; 4])> {
    let server = lab.host(SERVER);
    let mut families = vec![(
        IpAddr::from(server.ipv4()),
        [
            "239.1.2.3:9",
            "232.1.2.3:9",
            "224.0.0.1:9",
            "224.0.0.251:5353",
        ],
    )];
    if server.has_ipv6() {
        let groups = [
            "[ff15::1:2:3]:9",
            "[ff35::1:2:3]:9",
            "[ff02::1]:9",
            "[ff02::fb]:5353",
        ];
        families.push((server.ipv6().into(), groups));
    }
    families
}

#[test]
fn a_server_floods_no_address_that_did_not_ask() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        for (listen, groups) in families(&lab) {
            let bystander: IpAddr = if listen.is_ipv4() {
                lab.host(BYSTANDER).ipv4().into()
            } else {
                lab.host(BYSTANDER).ipv6().into()
            };
            let third = SocketAddr::new(bystander, 9).to_string();
            let before = lab.bytes_to(BYSTANDER).unwrap();
            let spec = ServeSpec::new;
            let sent = beside_a_server(&lab, listen, spec, |server| {
                let mut sent = 0;
                // The last one names no target: the server waits for a datagram of its client.
                let targets = groups.into_iter().chain([third.as_str()]).map(Some);
                for group in targets.chain([None]) {
                    let mut attacker = Attacker::connect(server);
                    let answer = attacker.ask(group, &json!({"hops": 255}));
                    attacker.say(&json!("go"));
                    thread::sleep(Duration::from_millis(300));
                    let reason = &answer["refused"]["reason"];
                    assert!(reason.is_string(), "{group:?}: {answer}");
                    sent += attacker.sent_bytes;
                }
                sent
            });
            let received = lab.bytes_to(BYSTANDER).unwrap() - before;
            assert!(
                received <= AMPLIFICATION_MAX * sent,
                "{listen}: {sent} B became {received} B"
            );
        }
    });
}

#[test]
fn a_group_that_is_allowed_gets_no_more_than_the_operator_allows() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let groups = families(&lab).into_iter();
        let groups = groups.flat_map(|(listen, [any, one, ..])| [(listen, any), (listen, one)]);
        for (listen, group) in groups {
            let allowed = |listen| ServeSpec {
                groups: vec![group.parse().unwrap()],
                bits_per_s_max: Some(8_000_000),
                ..ServeSpec::new(listen)
            };
            let before = lab.bytes_to(BYSTANDER).unwrap();
            beside_a_server(&lab, listen, allowed, |server| {
                let mut attacker = Attacker::connect(server);
                let far = attacker.ask(Some(group), &json!({"hops": 2}));
                let reason = far["refused"]["reason"].as_str().unwrap();
                assert!(reason.contains("--hops-max 2"), "{reason}");
                assert_eq!(attacker.ask(Some(group), &json!({})), "ready");
                attacker.say(&json!("go"));
                attacker.say(&json!({"sent": 0}));
                let outcome = attacker.hear();
                let sent = outcome["outcome"]["dispatch"]["sent"].as_u64().unwrap();
                assert!(sent > 100, "{outcome}");
                assert_eq!(outcome["outcome"]["rate_per_s_max"], 680, "{outcome}");
            });
            let whole = lab.bytes_to(BYSTANDER).unwrap() - before;
            // 1.5 s at 1 MB/s, and a little for what the hosts say by themselves.
            assert!((150_000..1_600_000).contains(&whole), "{group}: {whole} B");
        }
    });
}

#[test]
fn a_trial_ends_with_the_connection_of_its_client() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let groups = families(&lab).into_iter();
        let groups = groups.flat_map(|(listen, [any, one, ..])| [(listen, any), (listen, one)]);
        for (listen, group) in groups {
            let allowed = |listen| ServeSpec {
                groups: vec![group.parse().unwrap()],
                ..ServeSpec::new(listen)
            };
            beside_a_server(&lab, listen, allowed, |server| {
                let mut attacker = Attacker::connect(server);
                let change = json!({"duration_ms": 60_000, "rate_per_s": 1_000});
                assert_eq!(attacker.ask(Some(group), &change), "ready");
                attacker.say(&json!("go"));
                let begun = lab.bytes_to(BYSTANDER).unwrap();
                while lab.bytes_to(BYSTANDER).unwrap() < begun + 50_000 {
                    thread::sleep(Duration::from_millis(10));
                }
                drop(attacker);
                // The server looks a hundred times a second; this machine may be busy.
                let is_quiet = (0..50).any(|_| {
                    let before = lab.bytes_to(BYSTANDER).unwrap();
                    thread::sleep(Duration::from_millis(100));
                    lab.bytes_to(BYSTANDER).unwrap() - before < 5_000
                });
                assert!(is_quiet, "{group}: the server went on");
            });
        }
    });
}

#[test]
fn a_host_that_measures_nothing_makes_room_for_another() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let listen = lab.host(SERVER).ipv4().into();
        beside_a_server(&lab, listen, ServeSpec::new, |server| {
            let silent = Attacker::connect(server);
            // It wants its place for ever, and a second one.
            let mut greeting = Attacker::connect(server);
            let began = Instant::now();
            let (welcome, _honest) = lab
                .host(BYSTANDER)
                .enter(|| {
                    let mut honest = Attacker::connect(server);
                    honest.say(&json!({"hello": {"version": 1}}));
                    (honest.hear(), honest)
                })
                .unwrap();
            assert!(welcome["welcome"]["mtu"].is_number(), "{welcome}");
            assert!(
                began.elapsed() < Duration::from_secs(6),
                "{:?}",
                began.elapsed()
            );
            drop(silent);
            let answer = greeting.hear();
            let reason = answer["refused"]["reason"].as_str().unwrap();
            assert!(reason.contains("serves another client"), "{reason}");
        });
    });
}

/// Sends `messages` from the attacker's host to a reflector, and gives the bytes that it sent and
/// those that came back: to its own address, as nobody can tell a forged one.
fn reflected(lab: &Lab, listen: IpAddr, engine: Engine, messages: &[Vec<u8>]) -> (usize, usize) {
    let listen = SocketAddr::new(listen, 7_700);
    let (host, stop) = (lab.host(SERVER), AtomicBool::new(false));
    let spec = ReflectSpec {
        listen,
        engine,
        wait: Wait::Block,
    };
    let mut reflector = host.enter(|| Reflector::open(spec)).unwrap().unwrap();
    let is_stopped = || stop.load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| host.enter(|| reflector.run(&is_stopped)).unwrap().unwrap());
        let any: IpAddr = if listen.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let exchange = || exchanged((any, 0).into(), listen, messages);
        let counted = lab.host(ATTACKER).enter(exchange);
        stop.store(true, Ordering::Relaxed);
        counted.unwrap()
    })
}

fn exchanged(from: SocketAddr, to: SocketAddr, messages: &[Vec<u8>]) -> (usize, usize) {
    let socket = UdpSocket::bind(from).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(150)))
        .unwrap();
    let (mut sent, mut received, mut room) = (0, 0, vec![0; 65_536]);
    let mut take = || {
        while let Ok(len) = socket.recv(&mut room) {
            received += len;
        }
    };
    for message in messages {
        sent += socket.send_to(message, to).unwrap();
        if sent % 7 == 0 {
            take();
        }
    }
    take();
    (sent, received)
}

fn message(kind: ProbeKind, size: usize) -> Vec<u8> {
    let mut message = vec![0; size];
    let (token, sequence) = (1, 2);
    Probe {
        kind,
        token,
        sequence,
    }
    .emit(&mut message);
    message
}

/// Each message comes back at most once, and no larger.
fn are_no_larger(messages: &[Vec<u8>], is_answered: bool) {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        for (listen, _) in families(&lab) {
            for engine in [Engine::Recv, Engine::Mmsg] {
                let (sent, received) = reflected(&lab, listen, engine, messages);
                assert!(received <= sent, "{listen}: {sent} B became {received} B");
                assert!(!is_answered || received == sent, "{listen}: {received} B");
            }
        }
    });
}

#[test]
fn echoes_of_round_trips_are_as_large_as_their_probes() {
    let all = [24, 25, 64, 1_400].map(|size| message(ProbeKind::Probe, size));
    are_no_larger(&all, true);
    // Answers, kinds that nobody knows, and messages that say another length.
    let mut odd = Vec::new();
    for kind in 0..=u8::MAX {
        let mut one = message(ProbeKind::Echo, 64);
        one[5] = kind;
        odd.push(one.clone());
        one[6] = 255;
        odd.push(one);
    }
    odd.extend((0..PROBE_BYTES_MIN).map(|len| message(ProbeKind::Hello, 24)[..len].to_vec()));
    are_no_larger(&odd, false);
}

#[test]
fn answers_to_path_probes_are_as_large_as_the_probes() {
    let sizes = [24, 1_472, 1_473, 9_000, 40_000, 65_507];
    are_no_larger(&sizes.map(|size| message(ProbeKind::Hello, size)), true);
}

#[test]
fn answers_about_clocks_are_as_large_as_the_questions() {
    let sizes = [CLOCK_BYTES, CLOCK_BYTES + 1, 1_400];
    are_no_larger(&sizes.map(|size| message(ProbeKind::Clock, size)), true);
    let short = message(ProbeKind::Clock, CLOCK_BYTES - 1);
    are_no_larger(&[short], false);
}

#[test]
fn each_reflector_of_a_group_answers_once_and_no_longer() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let mut groups = vec!["239.192.0.8:7700"];
        if lab.host(SERVER).has_ipv6() {
            groups.push("[ff15::8]:7700");
        }
        for group in groups {
            let (sent, received) = reflected_at(&lab, group.parse().unwrap());
            assert_eq!(received, 2 * sent, "{group}: of two members");
        }
    });
}

/// Sends probes from the attacker's host to a group of which both other hosts are members. Gives
/// the bytes that it sent and those that came back.
fn reflected_at(lab: &Lab, group: SocketAddr) -> (usize, usize) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for host in [SERVER, BYSTANDER].map(|number| lab.host(number)) {
            let spec = ReflectSpec {
                listen: group,
                engine: Engine::Recv,
                wait: Wait::Block,
            };
            let interface = "e0".parse().unwrap();
            let open = || Reflector::open_on(spec, Some(&interface));
            let mut reflector = host.enter(open).unwrap().unwrap();
            let is_stopped = || stop.load(Ordering::Relaxed);
            scope.spawn(move || host.enter(|| reflector.run(&is_stopped)).unwrap().unwrap());
        }
        let host = lab.host(ATTACKER);
        let local: IpAddr = if group.is_ipv4() {
            host.ipv4().into()
        } else {
            host.ipv6().into()
        };
        let all = [24, 64, 1_400].map(|size| message(ProbeKind::Probe, size));
        let counted = host.enter(|| exchanged((local, 0).into(), group, &all));
        stop.store(true, Ordering::Relaxed);
        counted.unwrap()
    })
}

#[test]
fn a_host_that_was_heard_once_is_not_answered_for_ever() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let mut groups = vec!["239.192.0.7:7500"];
        if lab.host(SERVER).has_ipv6() {
            groups.push("[ff15::7]:7500");
        }
        for group in groups {
            let group: SocketAddr = group.parse().unwrap();
            let spec = ReachSpec {
                group,
                interface: Some("e0".parse().unwrap()),
                hops: 1,
                peers: Vec::new(),
                port: reach::PORT,
                time: Duration::from_secs(3),
                name: "honest".to_owned(),
                token: 1,
            };
            let host = lab.host(SERVER);
            let (sent, received) = thread::scope(|scope| {
                scope.spawn(|| {
                    host.enter(|| reach::reach(&spec, &|| false))
                        .unwrap()
                        .unwrap()
                });
                let (attacker, lab) = (lab.host(ATTACKER), &lab);
                attacker.enter(|| told_once(lab, group)).unwrap()
            });
            assert!(received > 0, "{group}: a heard host is answered");
            assert!(
                received <= AMPLIFICATION_MAX * sent,
                "{group}: {sent} B became {received} B"
            );
        }
    });
}

/// Sends one beacon to the group, as a host that is not there any more, and gives its bytes and
/// those that came to its address.
fn told_once(lab: &Lab, group: SocketAddr) -> (u64, u64) {
    let host = lab.host(ATTACKER);
    let local: IpAddr = if group.is_ipv4() {
        host.ipv4().into()
    } else {
        host.ipv6().into()
    };
    let socket = UdpSocket::bind((local, reach::PORT)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let beacon = json!({
        "towline_reach": 1, "token": 7, "name": "x", "group": group.to_string(), "hops": 1,
        "interface": "", "address": null, "refusal": null, "heard": [], "is_group": true,
    });
    let beacon = beacon.to_string();
    let mut room = [0; 2_048];
    // The other end needs a moment to join.
    thread::sleep(Duration::from_millis(700));
    socket.send_to(beacon.as_bytes(), group).unwrap();
    let (mut received, began) = (0, Instant::now());
    while began.elapsed() < Duration::from_millis(2_500) {
        received += socket.recv(&mut room).unwrap_or(0) as u64;
    }
    (beacon.len() as u64, received)
}

#[test]
fn a_host_that_takes_all_places_of_a_reflector_leaves_some_to_others() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        for (listen, _) in families(&lab) {
            let counts = places(&lab, (listen, 7_700).into());
            assert_eq!(counts.greeted, 1);
            // Where connecting takes long, some of those that got a place end for their silence.
            let turned_away = counts.turned_away;
            assert!((92..=100).contains(&turned_away), "{turned_away}");
        }
    });
}

/// Takes a hundred places of a TCP reflector from one host, then greets from another.
fn places(lab: &Lab, listen: SocketAddr) -> ReflectCounts {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (server, stop) = (lab.host(SERVER), &stop);
        let is_stopped = move || stop.load(Ordering::Relaxed);
        let reflecting = scope.spawn(move || {
            let reflect = || reflect_over(Transport::Tcp, listen, None, Wait::Block, &is_stopped);
            server.enter(reflect).unwrap().unwrap()
        });
        let silent = lab.host(ATTACKER).enter(|| {
            let connect = |_| TcpStream::connect(listen).ok();
            let first = (0..100).find_map(|nth| {
                thread::sleep(Duration::from_millis(20));
                connect(nth)
            });
            first
                .into_iter()
                .chain((1..100).filter_map(connect))
                .collect::<Vec<_>>()
        });
        let greeted = lab.host(BYSTANDER).enter(|| {
            let mut honest = TcpStream::connect(listen).unwrap();
            honest
                .set_read_timeout(Some(Duration::from_secs(3)))
                .unwrap();
            honest.write_all(&message(ProbeKind::Hello, 24)).unwrap();
            honest.read_exact(&mut [0; 24]).is_ok()
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(silent.unwrap().len(), 100);
        assert!(greeted.unwrap(), "a host has taken all places");
        reflecting.join().unwrap()
    })
}

#[test]
fn a_host_that_takes_all_places_of_a_tcp_responder_leaves_some_to_others() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        for (listen, _) in families(&lab) {
            let report = beside_greedy_clients(&lab, (listen, 7_702).into());
            assert_eq!(report.rows[0].calls, 3, "{listen}");
        }
    });
}

/// Takes the places of a responder to calls from one host, as many as it gets, and keeps them; then
/// makes calls from another host.
fn beside_greedy_clients(lab: &Lab, listen: SocketAddr) -> WritesReport {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (server, stop) = (lab.host(SERVER), &stop);
        let responder = server.enter(|| Responder::open(listen)).unwrap().unwrap();
        scope.spawn(move || {
            let is_stopped = || stop.load(Ordering::Relaxed);
            responder.run(&is_stopped, &mut |_| {}).unwrap();
        });
        let greedy = lab.host(ATTACKER).enter(|| {
            let connect = |_| {
                let mut client = Attacker::connect(listen);
                client.say(&json!({"request_bytes": 1, "reply_bytes": 1}));
                let answer = client.hear();
                (answer == "ready").then_some(client)
            };
            (0..20).filter_map(connect).collect::<Vec<_>>()
        });
        let greedy = greedy.unwrap();
        let calls = Writes {
            server: listen,
            sizes: vec![10],
            writes: 1,
            send_buffers: vec![None],
            coalescing: vec![Coalescing::NoDelay],
            calls: 3,
        };
        let report = lab
            .host(BYSTANDER)
            .enter(|| calls.run(&|| false, &mut |_| {}));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(greedy.len(), 4, "of 16");
        report.unwrap().unwrap()
    })
}
