//! What a program waits for: the descriptors of a socket, for `select`, `poll` and `epoll`.

use std::{ffi::c_int, os::fd::RawFd};

use cabi::guard;

use crate::{
    option::Number,
    socket::{Life, Sock},
};

/// Returns the descriptors to wait for data by, and those to wait for room by.
fn descriptors(life: &Life) -> Option<(Vec<RawFd>, Vec<RawFd>)> {
    if !life.is_bound() {
        return None;
    }
    let can_send = life.settings.can_send();
    let of = |which: Number| life.descriptor(which);
    let mut to_read: Vec<RawFd> = of(Number::RecvSock).into_iter().collect();
    if can_send {
        to_read.extend(of(Number::RepairSock));
    }
    to_read.extend(of(Number::PendingSock));
    let to_write = of(Number::SendSock).filter(|_| can_send);
    Some((to_read, to_write.into_iter().collect()))
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: every thread has an `errno` of its own.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it points to this thread's `errno`.
    unsafe { place.write(errno) };
    -1
}

/// Adds a socket's descriptors to sets. Raises `count` to one more than the highest descriptor if
/// it is less, and returns `count`.
#[unsafe(no_mangle)]
extern "C" fn pgm_select_info(
    sock: Option<&Sock>,
    to_read: Option<&mut libc::fd_set>,
    to_write: Option<&mut libc::fd_set>,
    count: Option<&mut c_int>,
) -> c_int {
    guard(-1, || {
        let found = sock.and_then(|sock| descriptors(&sock.life()));
        let (Some((reads, writes)), Some(count)) = (found, count) else {
            return fail(libc::EINVAL);
        };
        let mut above = *count;
        for (set, descriptors) in [(to_read, reads), (to_write, writes)] {
            let Some(set) = set else {
                continue;
            };
            for descriptor in descriptors {
                if descriptor as usize >= libc::FD_SETSIZE {
                    return fail(libc::EINVAL);
                }
                // SAFETY: the set holds every number below FD_SETSIZE.
                unsafe { libc::FD_SET(descriptor, set) };
                above = above.max(descriptor + 1);
            }
        }
        *count = above;
        above
    })
}

/// Writes a socket's descriptors into an array of `count` elements, and their number into `count`.
#[unsafe(no_mangle)]
extern "C" fn pgm_poll_info(
    sock: Option<&Sock>,
    array: *mut libc::pollfd,
    count: Option<&mut c_int>,
    events: i16,
) -> c_int {
    guard(-1, || {
        let found = sock.and_then(|sock| descriptors(&sock.life()));
        let (Some((reads, writes)), Some(count)) = (found, count) else {
            return fail(libc::EINVAL);
        };
        // SAFETY: the program says that there is room for `*count` elements.
        let room = unsafe { cabi::room(array, usize::try_from(*count).unwrap_or(0)) };
        let wanted = |descriptors: Vec<RawFd>, event: i16| {
            let is_wanted = events & event != 0;
            let all = descriptors.into_iter().filter(move |_| is_wanted);
            all.map(move |fd| libc::pollfd {
                fd,
                events: event,
                revents: 0,
            })
        };
        let all: Vec<_> = wanted(reads, libc::POLLIN)
            .chain(wanted(writes, libc::POLLOUT))
            .collect();
        let Some(room) = room.filter(|room| room.len() >= all.len()) else {
            return fail(libc::EINVAL);
        };
        for (place, fd) in room.iter_mut().zip(&all) {
            place.write(*fd);
        }
        *count = all.len() as c_int;
        *count
    })
}

/// Adds a socket's descriptors to an epoll instance, or changes their events, which then come with
/// the socket's pointer.
#[unsafe(no_mangle)]
extern "C" fn pgm_epoll_ctl(
    sock: Option<&Sock>,
    epoll: c_int,
    operation: c_int,
    events: c_int,
) -> c_int {
    guard(-1, || {
        let found = sock.map(|sock| (sock, descriptors(&sock.life())));
        let is_known = matches!(operation, libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD);
        let (Some((sock, Some((reads, writes)))), true) = (found, is_known) else {
            return fail(libc::EINVAL);
        };
        let flags = events & (libc::EPOLLET | libc::EPOLLONESHOT);
        for (wanted, descriptors) in [(libc::EPOLLIN, reads), (libc::EPOLLOUT, writes)] {
            if events & wanted == 0 {
                continue;
            }
            for descriptor in descriptors {
                let mut event = libc::epoll_event {
                    events: (wanted | flags) as u32,
                    u64: std::ptr::from_ref(sock).addr() as u64,
                };
                // SAFETY: the event lives during the call, which checks the descriptors.
                let result =
                    unsafe { libc::epoll_ctl(epoll, operation, descriptor, &raw mut event) };
                if result < 0 {
                    return result;
                }
            }
        }
        0
    })
}
