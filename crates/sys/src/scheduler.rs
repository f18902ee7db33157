//! Scheduling of the calling thread: its real-time class, its processor, and the kernel's limits.

use std::{fs, io};

use rustix::{
    io::Errno,
    mm::{MlockAllFlags, mlockall},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::call::check;

/// Puts the calling thread into the real-time class SCHED_FIFO: until it waits, the thread then
/// runs before every ordinary thread.
///
/// # Errors
/// `EPERM` beyond `ulimit -r` without CAP_SYS_NICE; `EINVAL` for a priority outside 1 to 99.
pub fn set_fifo(priority: u8) -> io::Result<()> {
    set(libc::SCHED_FIFO, priority)
}

/// Puts the calling thread back into the ordinary class.
///
/// # Errors
/// Never in practice.
pub fn set_other() -> io::Result<()> {
    set(libc::SCHED_OTHER, 0)
}

fn set(policy: libc::c_int, priority: u8) -> io::Result<()> {
    let param = libc::sched_param {
        sched_priority: priority.into(),
    };
    // SAFETY: `param` is live and only read; process 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const param) })?;
    Ok(())
}

/// Binds the calling thread to one processor.
///
/// # Errors
/// `EINVAL` for a processor that does not exist or that this process may not use.
pub fn set_cpu(cpu: u32) -> io::Result<()> {
    let cpu = usize::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
    if cpu >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Returns the processors that the calling thread may use, in order.
///
/// # Errors
/// When the machine has more than 1,024 processors.
pub fn cpus() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect())
}

/// Returns how long real-time threads may run in each period, as `(runtime, period)` in
/// nanoseconds. `None` when they may always run, or when the kernel does not say.
#[must_use]
pub fn realtime_limit_ns() -> Option<(u64, u64)> {
    let read = |name: &str| -> Option<i64> {
        let text = fs::read_to_string(format!("/proc/sys/kernel/sched_rt_{name}_us")).ok()?;
        text.trim().parse().ok()
    };
    let (runtime, period) = (read("runtime")?, read("period")?);
    let ns = |us: i64| u64::try_from(us).ok().map(|us| us * 1_000);
    (runtime < period).then_some((ns(runtime)?, ns(period)?))
}

/// Locks the memory that this process has, so that no page has to be fetched while the process
/// measures. Memory allocated later is not locked, because allocations beyond `ulimit -l` would
/// then fail. Call this function again when memory has grown.
///
/// # Errors
/// `EPERM` or `ENOMEM` without CAP_IPC_LOCK beyond `ulimit -l`.
pub fn lock_memory() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_bound_to_a_processor_it_may_use() {
        let allowed = cpus().unwrap();
        let &last = allowed.last().unwrap();
        std::thread::spawn(move || {
            set_cpu(last).unwrap();
            assert_eq!(cpus().unwrap(), [last]);
            set_other().unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(
            set_cpu(1 << 20).unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
        assert_eq!(cpus().unwrap(), allowed);
    }

    #[test]
    fn a_priority_that_does_not_exist_is_refused() {
        // When this user may not use the class at all, the error may be EPERM instead.
        let code = set_fifo(100).unwrap_err().raw_os_error();
        assert!(code == Some(libc::EINVAL) || code == Some(libc::EPERM));
    }
}
