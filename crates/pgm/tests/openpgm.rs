//! What OpenPGM's receivers demand beyond the RFC.

use base::{Budget, Instant, PathId};
use towline_pgm::{Config, Source, SourceSetup};
use wire::pgm::{Body, Gsi, Packet, Tsi};

#[test]
fn the_first_spm_number_is_in_the_lower_half() {
    // OpenPGM compares a new peer's first SPM with 0 and takes none from the upper half.
    for seed in 0..64 {
        let setup = SourceSetup {
            tsi: Tsi {
                gsi: Gsi([1, 2, 3, 4, 5, 6]),
                port: 1000,
            },
            destination_port: 7500,
            group: ([239, 192, 0, 1], 7500).into(),
            nla: [10, 0, 0, 1].into(),
            path: PathId(0),
            first_sqn: 0,
            seed,
            mark: None,
        };
        let mut source = Source::new(Config::default(), setup, Instant::ZERO);
        let budget = Budget {
            bytes: 64_000,
            datagrams: 128,
        };
        let run = source.poll_run(Instant::ZERO, budget).unwrap();
        let Body::Spm(spm) = Packet::parse(run.memory).unwrap().body() else {
            panic!("not an SPM");
        };
        assert!(spm.sqn.0 < 1 << 31, "seed {seed}: {:?}", spm.sqn);
    }
}
