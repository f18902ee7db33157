//! What was written is read back, a cut file is read as far as it goes, and a hostile file does no
//! harm.

use proptest::prelude::*;

use super::*;
use crate::DisturbanceKind;

fn setup(per_second: Option<u64>) -> Setup {
    Setup {
        label: "one".to_owned(),
        per_second,
        size_bytes: 64,
        transport: Transport::Udp,
        is_ipv6: false,
        sched: "other".to_owned(),
        engine: "recv".to_owned(),
        wait: "spin".to_owned(),
        cpu: Some(1),
        window_messages: None,
    }
}

/// A result with a scheduled run whose slots 5 to 9 were missed, and a ping-pong run.
fn written() -> (Vec<u8>, Vec<Sample>, Vec<Sample>) {
    let schedule = Schedule::new(30_000).unwrap();
    let scheduled: Vec<Sample> = (0..20_000)
        .filter(|n| !(5..10).contains(n))
        .map(|sequence| Sample {
            sequence,
            intended_ns: schedule.due_ns(sequence),
            sent_ns: schedule.due_ns(sequence) + sequence % 7,
            rtt_ns: (sequence % 11 != 0).then_some(sequence * 13),
        })
        .collect();
    let pinged: Vec<Sample> = (0..100)
        .map(|sequence| Sample {
            sequence,
            intended_ns: sequence * 900,
            sent_ns: sequence * 900,
            rtt_ns: Some(800),
        })
        .collect();
    let manifest = Manifest {
        target: "10.0.0.1:7700".to_owned(),
        ..Manifest::default()
    };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &manifest).unwrap();
    writer.begin(&setup(Some(30_000))).unwrap();
    for sample in &scheduled {
        writer.sample(sample).unwrap();
    }
    writer.split(&split(7)).unwrap();
    writer.split(&split(900)).unwrap();
    let kind = DisturbanceKind::Pause;
    let (at_ns, lasted_ns) = (5, 6);
    writer
        .disturbance(&Disturbance {
            kind,
            at_ns,
            lasted_ns,
        })
        .unwrap();
    writer.end(&End::default()).unwrap();
    writer.begin(&setup(None)).unwrap();
    for sample in &pinged {
        writer.sample(sample).unwrap();
    }
    writer.end(&End::default()).unwrap();
    (bytes, scheduled, pinged)
}

fn split(sequence: u64) -> Split {
    Split {
        sequence,
        queue_ns: 1,
        device_ns: 2,
        link_ns: 3,
        wake_ns: 4,
    }
}

#[test]
fn what_is_written_is_read() {
    let (bytes, scheduled, pinged) = written();
    assert!(bytes.len() < 20_000 * 8, "{} bytes", bytes.len());
    let file = read(&bytes[..]).unwrap();
    assert_eq!(file.cut, None);
    assert_eq!(file.manifest.target, "10.0.0.1:7700");
    assert_eq!(file.runs[0].samples, scheduled);
    assert_eq!(file.runs[0].splits, [split(7), split(900)]);
    assert_eq!(file.runs[0].disturbances.len(), 1);
    assert_eq!(file.runs[1].samples, pinged);
    assert_eq!(file.runs[1].setup, setup(None));
}

#[test]
fn a_file_that_was_cut_is_read_as_far_as_it_goes() {
    let (bytes, scheduled, _) = written();
    let mut most = 0;
    // Cuts at every byte of the beginning and of the end, and at some of the many in between.
    let beginning = 0..2_000;
    let middle = (2_000..bytes.len() - 2_000).step_by(997);
    for cut in beginning
        .chain(middle)
        .chain(bytes.len() - 2_000..bytes.len())
    {
        let file = read(&bytes[..cut]).unwrap();
        let at_end = !file.runs.is_empty() && file.runs.iter().all(|run| run.end.is_some());
        assert!(file.cut.is_some() || at_end, "cut at {cut}");
        if let Some(run) = file.runs.first() {
            assert_eq!(
                run.samples[..],
                scheduled[..run.samples.len()],
                "cut at {cut}"
            );
            most = most.max(run.samples.len());
        }
    }
    assert!(most > 1_000);
    assert!(matches!(read(&bytes[1..]), Err(RawError::Foreign)));
    assert!(matches!(read(&b"towline-rut"[..]), Err(RawError::Foreign)));
}

#[test]
fn a_file_that_was_cut_says_what_is_missing() {
    let (bytes, ..) = written();
    let cut = |at: usize| read(&bytes[..at]).unwrap().cut;
    let whole = |left_out, missing| Some(FileCut { left_out, missing });
    assert_eq!(cut(0), whole(0, None));
    assert_eq!(cut(5), whole(5, None));
    let manifest = MAGIC.len();
    assert_eq!(cut(manifest + 3), whole(3, None));
    let head: [u8; 4] = bytes[manifest + 1..manifest + 5].try_into().unwrap();
    let len = u64::from(u32::from_le_bytes(head));
    assert_eq!(cut(manifest + 5 + 7), whole(12, Some(len - 7)));
    // A cut between two blocks of a run leaves no bytes out, but the run has no end.
    let mut unended = Vec::new();
    let mut writer = Writer::new(&mut unended, &Manifest::default()).unwrap();
    writer.begin(&setup(None)).unwrap();
    drop(writer);
    assert_eq!(read(&unended[..]).unwrap().cut, whole(0, None));
    assert_eq!(cut(bytes.len()), None);
}

proptest! {
    #[test]
    fn hostile_files_do_no_harm(
        blocks in proptest::collection::vec(
            (0..9_u8, proptest::collection::vec(any::<u8>(), 0..40)), 0..8),
        at in 0..200_usize,
        byte: u8,
    ) {
        let mut bytes = MAGIC.to_vec();
        let run = serde_json::to_vec(&setup(Some(10))).unwrap();
        for (kind, payload) in std::iter::once((RUN, run)).chain(blocks) {
            bytes.push(kind);
            bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(&payload);
        }
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(file) = read(&bytes[..]) {
            for sample in file.runs.iter().flat_map(|run| &run.samples) {
                let _both = (sample.rtt_intended_ns(), sample.late_ns());
            }
        }
    }
}
