//! Filters in the classic BPF, run over frames: what the kernel does with a socket filter, done
//! here so that what is rejected is counted.
//!
//! A program is checked once, so that running it cannot fail: every jump goes forward and stays
//! inside, the last instruction returns, and memory cells exist. A load beyond the frame rejects
//! it.
//!
//! **Spec**: Documentation/networking/filter.rst, "BSD Packet Filter" (McCanne, Jacobson 1993).

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when the condition holds.
    pub if_true: u8,
    /// Instructions to skip when it does not.
    pub if_false: u8,
    /// Operand.
    pub operand: u32,
}

/// A program that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    ops: Vec<Op>,
}

impl Program {
    /// Checks a program; none when it could leave its own bounds or never returns.
    #[must_use]
    pub fn new(ops: Vec<Op>) -> Option<Self> {
        let len = ops.len();
        let is_fine = |(at, op): (usize, &Op)| {
            let reaches = |skip: usize| at + 1 + skip < len;
            match op.code & CLASS {
                JUMP if op.code & OPERATION == 0 => reaches(op.operand as usize),
                JUMP => reaches(op.if_true.into()) && reaches(op.if_false.into()),
                RETURN => true,
                STORE | STORE_X => (op.operand as usize) < CELLS && reaches(0),
                LOAD | LOAD_X if op.code & MODE == MEMORY => {
                    (op.operand as usize) < CELLS && reaches(0)
                }
                _ => reaches(0),
            }
        };
        let is_safe = len <= OPS_MAX && ops.iter().enumerate().all(is_fine);
        (is_safe && len > 0).then_some(Self { ops })
    }

    /// What the program returns for a frame of `wire_len` bytes of which `frame` is there: 0 to
    /// reject it, otherwise how much of it to keep.
    ///
    /// **Cost**: about a nanosecond an instruction; no allocation.
    #[must_use]
    pub fn run(&self, frame: &[u8], wire_len: u32) -> u32 {
        let mut machine = Machine {
            a: 0,
            x: 0,
            cells: [0; CELLS],
        };
        let mut at = 0;
        // Jumps go forward only, so this ends; the last instruction returns.
        while let Some(op) = self.ops.get(at) {
            at += 1;
            match op.code & CLASS {
                RETURN => {
                    return match op.code & RETURN_SOURCE {
                        RETURN_A => machine.a,
                        _ => op.operand,
                    };
                }
                JUMP => at += machine.jump(op),
                _ => {
                    if machine.step(op, frame, wire_len).is_none() {
                        return 0;
                    }
                }
            }
        }
        0
    }
}

struct Machine {
    a: u32,
    x: u32,
    cells: [u32; CELLS],
}

impl Machine {
    /// Instructions to skip.
    fn jump(&self, op: &Op) -> usize {
        let right = if op.code & FROM_X != 0 {
            self.x
        } else {
            op.operand
        };
        let holds = match op.code & OPERATION {
            0x10 => self.a == right,
            0x20 => self.a > right,
            0x30 => self.a >= right,
            0x40 => self.a & right != 0,
            _ => return op.operand as usize,
        };
        usize::from(if holds { op.if_true } else { op.if_false })
    }

    /// Anything but a jump or a return; none for what rejects the frame.
    fn step(&mut self, op: &Op, frame: &[u8], wire_len: u32) -> Option<()> {
        match op.code & CLASS {
            LOAD => self.a = self.load(op, frame, wire_len)?,
            LOAD_X => {
                self.x = match op.code & MODE {
                    // Four times the lower half of a byte: the length of an IPv4 header.
                    HEADER_LEN => {
                        let byte = frame.get(op.operand as usize)?;
                        u32::from(byte & 15) * 4
                    }
                    _ => self.load(op, frame, wire_len)?,
                };
            }
            STORE => self.cells[op.operand as usize] = self.a,
            STORE_X => self.cells[op.operand as usize] = self.x,
            ARITHMETIC => self.a = self.arithmetic(op)?,
            _ if op.code & 0xF8 == 0x80 => self.a = self.x,
            _ => self.x = self.a,
        }
        Some(())
    }

    fn load(&self, op: &Op, frame: &[u8], wire_len: u32) -> Option<u32> {
        let offset = match op.code & MODE {
            ABSOLUTE => op.operand,
            INDIRECT => self.x.checked_add(op.operand)?,
            MEMORY => return self.cells.get(op.operand as usize).copied(),
            LENGTH => return Some(wire_len),
            _ => return Some(op.operand),
        };
        let bytes = frame.get(offset as usize..)?;
        Some(match op.code & SIZE {
            0x08 => u16::from_be_bytes(*bytes.first_chunk()?).into(),
            0x10 => (*bytes.first()?).into(),
            _ => u32::from_be_bytes(*bytes.first_chunk()?),
        })
    }

    fn arithmetic(&self, op: &Op) -> Option<u32> {
        let a = self.a;
        let right = if op.code & FROM_X != 0 {
            self.x
        } else {
            op.operand
        };
        Some(match op.code & OPERATION {
            0x00 => a.wrapping_add(right),
            0x10 => a.wrapping_sub(right),
            0x20 => a.wrapping_mul(right),
            0x30 => a.checked_div(right)?,
            0x40 => a | right,
            0x50 => a & right,
            0x60 => a.checked_shl(right).unwrap_or(0),
            0x70 => a.checked_shr(right).unwrap_or(0),
            0x80 => a.wrapping_neg(),
            0x90 => a.checked_rem(right)?,
            0xa0 => a ^ right,
            _ => return None,
        })
    }
}

const CLASS: u16 = 0x07;
const LOAD: u16 = 0x00;
const LOAD_X: u16 = 0x01;
const STORE: u16 = 0x02;
const STORE_X: u16 = 0x03;
const ARITHMETIC: u16 = 0x04;
const JUMP: u16 = 0x05;
const RETURN: u16 = 0x06;
const SIZE: u16 = 0x18;
const MODE: u16 = 0xe0;
const ABSOLUTE: u16 = 0x20;
const INDIRECT: u16 = 0x40;
const MEMORY: u16 = 0x60;
const LENGTH: u16 = 0x80;
const HEADER_LEN: u16 = 0xa0;
const OPERATION: u16 = 0xf0;
const FROM_X: u16 = 0x08;
const RETURN_SOURCE: u16 = 0x18;
const RETURN_A: u16 = 0x10;
/// Memory cells of the machine, and the longest program that the kernel takes.
const CELLS: usize = 16;
const OPS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn op(code: u16, if_true: u8, if_false: u8, operand: u32) -> Op {
        Op {
            code,
            if_true,
            if_false,
            operand,
        }
    }

    /// What libpcap makes of `udp dst port 53` on Ethernet.
    fn udp_dst_53() -> Program {
        let ops = vec![
            op(0x28, 0, 0, 12),
            op(0x15, 0, 4, 0x86dd),
            op(0x30, 0, 0, 20),
            op(0x15, 0, 11, 17),
            op(0x28, 0, 0, 56),
            op(0x15, 8, 9, 53),
            op(0x15, 0, 8, 0x0800),
            op(0x30, 0, 0, 23),
            op(0x15, 0, 6, 17),
            op(0x28, 0, 0, 20),
            op(0x45, 4, 0, 0x1fff),
            op(0xb1, 0, 0, 14),
            op(0x48, 0, 0, 16),
            op(0x15, 0, 1, 53),
            op(0x06, 0, 0, 262_144),
            op(0x06, 0, 0, 0),
        ];
        Program::new(ops).unwrap()
    }

    fn datagram(port: u8) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = 17;
        frame[37] = port;
        frame
    }

    #[test]
    fn a_program_of_libpcap_s_tells_frames_apart() {
        let program = udp_dst_53();
        assert_eq!(program.run(&datagram(53), 60), 262_144);
        assert_eq!(program.run(&datagram(54), 60), 0);
        assert_eq!(
            program.run(&datagram(53)[..37], 60),
            0,
            "cut before the port"
        );
        let mut fragment = datagram(53);
        fragment[21] = 9;
        assert_eq!(program.run(&fragment, 60), 0);
    }

    #[test]
    fn arithmetic_memory_and_length_work() {
        let ops = vec![
            op(0x80, 0, 0, 0),  // A = length
            op(0x02, 0, 0, 3),  // M[3] = A
            op(0x00, 0, 0, 10), // A = 10
            op(0x07, 0, 0, 0),  // X = A
            op(0x60, 0, 0, 3),  // A = M[3]
            op(0x1c, 0, 0, 0),  // A -= X
            op(0x24, 0, 0, 3),  // A *= 3
            op(0x16, 0, 0, 0),  // return A
        ];
        assert_eq!(Program::new(ops).unwrap().run(&[], 60), 150);
        let divide = |by| vec![op(0x34, 0, 0, by), op(0x06, 0, 0, 1)];
        assert_eq!(Program::new(divide(0)).unwrap().run(&[], 0), 0);
        assert_eq!(Program::new(divide(2)).unwrap().run(&[], 0), 1);
    }

    #[test]
    fn programs_that_would_leave_their_bounds_are_refused() {
        let returns = op(0x06, 0, 0, 1);
        for ops in [
            vec![],
            vec![op(0x28, 0, 0, 12)],
            vec![op(0x15, 1, 0, 0), returns],
            vec![op(0x05, 0, 0, u32::MAX), returns],
            vec![op(0x02, 0, 0, 16), returns],
            vec![op(0x61, 0, 0, 16), returns],
        ] {
            assert!(Program::new(ops.clone()).is_none(), "{ops:?}");
        }
    }

    proptest! {
        #[test]
        fn any_program_that_is_accepted_ends(
            ops in prop::collection::vec((any::<u16>(), 0..4_u8, 0..4_u8, 0..64_u32), 1..40),
            frame in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut ops: Vec<Op> = ops
                .into_iter()
                .map(|(code, if_true, if_false, operand)| op(code, if_true, if_false, operand))
                .collect();
            ops.extend([op(0x06, 0, 0, 1); 5]);
            if let Some(program) = Program::new(ops) {
                let _any = program.run(&frame, 1500);
            }
        }
    }
}
