//! Finds runs of zeros that need no room on the disk.

use std::{io, ops::Range};

/// Divides `bytes` into parts, and calls `take` for each part, in order, with its range and true if
/// it becomes a hole. A hole is a run of at least [`HOLE_BYTES_MIN`] zeros. At either end of
/// `bytes`, [`EDGE_BYTES_MIN`] zeros are enough: the file's bytes before or after may continue the
/// run.
///
/// **Cost**: where the bytes are not zeros, it looks at one byte in [`PROBE_BYTES`].
pub(super) fn parts(
    bytes: &[u8],
    mut take: impl FnMut(Range<usize>, bool) -> io::Result<()>,
) -> io::Result<()> {
    let end = bytes.len();
    let (mut done, mut probe) = (0, 0);
    while probe < end {
        // The last byte is probed, too: a run of zeros that ends there may become a hole even if it
        // is shorter than the distance between probes.
        let next = (probe + PROBE_BYTES).min(end - 1).max(probe + 1);
        if bytes[probe] != 0 {
            probe = next;
            continue;
        }
        let is_zero = |byte: &&u8| **byte == 0;
        let start = probe - bytes[done..probe].iter().rev().take_while(is_zero).count();
        let stop = probe + bytes[probe..].iter().take_while(is_zero).count();
        let at_edge = start == 0 || stop == end;
        let least = if at_edge {
            EDGE_BYTES_MIN
        } else {
            HOLE_BYTES_MIN
        };
        if stop - start >= least {
            if done < start {
                take(done..start, false)?;
            }
            take(start..stop, true)?;
            done = stop;
        }
        probe = next.max(stop);
    }
    if done < end {
        take(done..end, false)?;
    }
    Ok(())
}

/// Bytes of the shortest run of zeros that becomes a hole: most filesystems allocate space in
/// blocks of this length.
const HOLE_BYTES_MIN: usize = 4096;
/// Bytes of the shortest run of zeros that becomes a hole if it lies at the beginning or end of the
/// given bytes. For a shorter run, the system call costs more than the hole saves.
const EDGE_BYTES_MIN: usize = 512;
/// Bytes between two probes: a run of [`HOLE_BYTES_MIN`] zeros cannot lie between them.
const PROBE_BYTES: usize = HOLE_BYTES_MIN / 2;

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn all(bytes: &[u8]) -> Vec<(Range<usize>, bool)> {
        let mut all = Vec::new();
        parts(bytes, |part, is_hole| {
            all.push((part, is_hole));
            Ok(())
        })
        .unwrap();
        all
    }

    #[test]
    fn runs_become_holes_where_they_are_long_enough() {
        assert_eq!(all(&[]), []);
        assert_eq!(all(&[0; 100]), [(0..100, false)]);
        assert_eq!(all(&[0; 600]), [(0..600, true)]);
        let bytes = [&[0; 511][..], &[1; 5000], &[0; 4095], &[2], &[0; 511]].concat();
        assert_eq!(all(&bytes), [(0..bytes.len(), false)]);
        let bytes = [&[0; 512][..], &[1; 5000], &[0; 4096], &[2], &[0; 512]].concat();
        let expected = [
            (0..512, true),
            (512..5512, false),
            (5512..9608, true),
            (9608..9609, false),
            (9609..10_121, true),
        ];
        assert_eq!(all(&bytes), expected);
    }

    #[test]
    fn parts_are_all_bytes_and_no_long_run_is_written() {
        let mut rng = Rng::new(7);
        for _ in 0..500 {
            let mut bytes = Vec::new();
            for _ in 0..rng.below(12) {
                let (len, byte) = (rng.below(10_000) as usize, rng.below(2) as u8);
                bytes.resize(bytes.len() + len, byte);
            }
            let mut at = 0;
            for (part, is_hole) in all(&bytes) {
                assert!(part.start == at && part.end > at);
                at = part.end;
                let part = &bytes[part];
                if is_hole {
                    assert!(part.iter().all(|byte| *byte == 0));
                } else {
                    let mut runs = part.split(|byte| *byte != 0);
                    assert!(runs.all(|run| run.len() < HOLE_BYTES_MIN));
                }
            }
            assert_eq!(at, bytes.len());
        }
    }
}
