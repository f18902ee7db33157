//! `int:IF`: one system call and one copy for each packet, for comparison with the rings.

use std::os::fd::{AsFd as _, BorrowedFd};

use sys::{
    errno::{ENETDOWN, ENODEV},
    packet::PacketSocket,
};

use super::{
    LiveOptions, Progress, Source, Visit,
    live::{SNAP_LEN, Tap, shut},
    memory::Memory,
};
use crate::{CaptureError, Interface, Losses, Packet};

/// The packets of one interface, read from a plain socket.
#[derive(Debug)]
pub struct SocketSource {
    tap: Tap,
    socket: PacketSocket,
    buffer: Vec<u8>,
}

impl SocketSource {
    /// Opens the socket and lets packets in.
    ///
    /// # Errors
    /// When there is no such interface or no permission, or when the kernel refuses.
    pub fn open(name: &str, options: &LiveOptions) -> Result<Self, CaptureError> {
        let mut tap = Tap::find(name, "packet socket", options.snap_len)?;
        let socket = tap.socket(options)?;
        let memory = Memory::new(name, options.ring_bytes, 1);
        let wanted = memory.wanted();
        let prepared = socket
            .set_auxiliary_data(true)
            .and_then(|()| socket.set_receive_buffer(wanted));
        let granted = prepared.map_err(|cause| {
            CaptureError::os(format!("set up the packet socket for {name}"), cause)
        })?;
        if granted < wanted {
            tap.remarks.push(format!(
                "{name}: the kernel grants the socket a buffer of {granted} bytes instead of \
                 {wanted}; for more, give CAP_NET_ADMIN or raise net.core.rmem_max"
            ));
        } else {
            tap.remarks.extend(memory.remark(wanted, granted));
        }
        tap.start(&socket, options)?;
        Ok(Self {
            tap,
            socket,
            buffer: vec![0; SNAP_LEN as usize + 64],
        })
    }
}

impl Source for SocketSource {
    fn interfaces(&self) -> &[Interface] {
        &self.tap.interface
    }

    fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError> {
        let mut progress = Progress::Idle;
        for _ in 0..PACKETS_A_SHARE {
            match self.socket.receive(&mut self.buffer) {
                Ok(Some(raw)) => {
                    progress = Progress::Some;
                    if visit(&Packet::of_ring(&raw, 0)).is_break() {
                        break;
                    }
                }
                Ok(None) => break,
                Err(cause) if matches!(cause.raw_os_error(), Some(ENETDOWN | ENODEV)) => {
                    self.tap.note_error(&cause);
                    break;
                }
                Err(cause) => {
                    let name = &self.tap.interface[0].name;
                    return Err(CaptureError::os(format!("receive from {name}"), cause));
                }
            }
        }
        Ok(match progress {
            Progress::Idle => self.tap.idle_sockets([]),
            progress => progress,
        })
    }

    fn losses(&mut self) -> Result<Losses, CaptureError> {
        let drops = self.socket.take_drops();
        self.tap.losses(drops)
    }

    fn stop(&mut self) -> Result<bool, CaptureError> {
        shut(&self.socket)?;
        Ok(true)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn named_losses(&mut self) -> Vec<(String, u64)> {
        self.tap.named_losses()
    }

    fn take_remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.tap.remarks)
    }
}

const PACKETS_A_SHARE: usize = 1024;
