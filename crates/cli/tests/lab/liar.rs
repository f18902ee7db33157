//! A host that holds nothing of a file, knows its published hash, and says to a real sender that it
//! has it.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use lab::{Host, Lab, LabSpec};
use serde_json::Value;
use wire::object::{
    BODY_LEN_MAX, Decoder, Done, DoneNumbers, Hello, Message, ObjectId, RangeList, Ranges,
};

use crate::{
    addresses::groups,
    attacker::overhear,
    ends::{End, alone, towline},
    signals::Place,
};

const LIMIT: Duration = Duration::from_secs(60);
const FILE_BYTES: u64 = 500_000;

/// One end of a conversation with a sender.
struct Liar {
    connection: TcpStream,
    decoder: Decoder,
}

impl Liar {
    fn say(&mut self, message: &Message<'_>) {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        self.connection.write_all(&bytes).unwrap();
    }

    /// Says that it has the content, or lacks the seals.
    fn list(&mut self, object: ObjectId, len: u64) {
        let mut scratch = Vec::new();
        let list = RangeList {
            pass: 1,
            object,
            is_last: true,
            ranges: Ranges::encode(&mut scratch, &mut std::iter::once(0..len)),
        };
        self.say(&match object {
            ObjectId::CONTENT => Message::Have(list),
            _ => Message::Need(list),
        });
    }

    /// Reads until the sender has closed the connection, and hands each message to `answer`.
    fn converse(&mut self, mut answer: impl FnMut(&mut Self, &Message<'_>)) {
        let mut piece = [0; 65_536];
        while let Ok(count @ 1..) = self.connection.read(&mut piece) {
            self.decoder.push(&piece[..count]);
            let mut decoder = std::mem::replace(&mut self.decoder, Decoder::new(BODY_LEN_MAX));
            while let Ok(Some(message)) = decoder.next_message() {
                answer(self, &message);
            }
            self.decoder = decoder;
        }
    }
}

/// Says that it has all, asks for the seals, and gives the first of them, or the root, for a proof.
/// Returns the sender's answer.
fn lie(host: &Host, group: &str, root: [u8; 32], proves_by_seal: bool) -> String {
    let session = overhear(host, group.parse::<SocketAddr>().unwrap(), false);
    let connection = host.enter(|| TcpStream::connect(session.control));
    let connection = connection.unwrap().unwrap();
    connection.set_read_timeout(Some(LIMIT)).unwrap();
    let mut liar = Liar {
        connection,
        decoder: Decoder::new(BODY_LEN_MAX),
    };
    liar.say(&Message::Hello(Hello {
        version_min: 1,
        version_max: 1,
        instance: 7,
        session_id: session.mark.session_id,
        name: "liar",
        nonce: None,
    }));
    let (mut seals, mut verdict) = (Vec::new(), String::new());
    liar.converse(|liar, message| match message {
        Message::Welcome(_) => liar.list(ObjectId::CONTENT, FILE_BYTES),
        Message::Seals(told) if seals.is_empty() => liar.list(ObjectId::SEALS, told.bytes),
        Message::Block(block) if block.object == ObjectId::SEALS => {
            seals.extend_from_slice(block.data);
        }
        Message::PassEnd(_) if seals.len() == 32 => {
            let seal = seals[..].try_into().unwrap();
            let numbers = DoneNumbers {
                bytes: FILE_BYTES,
                ..DoneNumbers::default()
            };
            let proof = if proves_by_seal { seal } else { root };
            liar.say(&Message::Done(Done {
                root,
                proof,
                numbers,
            }));
        }
        Message::Acknowledged => verdict.push_str("acknowledged"),
        Message::Error { text, .. } => verdict.push_str(text),
        _ => {}
    });
    assert_eq!(seals.len(), 32);
    verdict
}

fn send(lab: &Lab, file: &str, to: &str) -> End {
    let words = format!("send {file} -g {to} --json --receivers 1 --join-timeout 30s");
    End::start(towline(lab.host(0), &words))
}

#[test]
fn who_holds_nothing_is_not_proven_by_a_real_sender() {
    alone(|| {
        let (lab, place) = (Lab::new(&LabSpec::new(3)).unwrap(), Place::new("liar"));
        let file = place.file("file");
        fs::write(&file, vec![7; FILE_BYTES as usize]).unwrap();
        let groups = groups(&lab);
        // The root is no secret: an honest receiver and the sender print it.
        let (from, to) = &groups[0];
        let sent = send(&lab, &file, to);
        let words = format!("recv {} -g {from} --from any --json", place.file("in"));
        let received = End::start(towline(lab.host(1), &words)).report(LIMIT);
        let sent = sent.report(LIMIT);
        assert_eq!(sent["is_proven"], true, "{sent:#}");
        assert_eq!(received["root"], sent["root"], "{received:#}");
        let text = sent["root"].as_str().unwrap();
        let root: Vec<u8> = (0..64)
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect();
        for (number, (_, to)) in groups.iter().enumerate() {
            let sent = send(&lab, &file, to);
            let root = root[..].try_into().unwrap();
            let verdict = lie(lab.host(2), to, root, number % 2 == 0);
            assert!(
                verdict.contains("claims what it cannot show"),
                "{to}: {verdict}"
            );
            let (status, text) = sent.finish(LIMIT);
            assert_eq!(status.code(), Some(1), "{to}: {text}");
            let report: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(report["is_proven"], false, "{to}: {report:#}");
            let liar = &report["receivers"][0];
            assert_eq!(liar["name"], "liar", "{to}: {report:#}");
            assert_ne!(liar["state"], "proven", "{to}: {report:#}");
        }
    });
}
