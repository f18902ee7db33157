//! Prepares a thread to measure, and reports what the system refused.

use std::fmt;

use sys::{errno, scheduler};

/// How a thread waits for a packet or a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Wait {
    /// Sleeps in the kernel until a packet is there or a slot is due. This takes no processor time,
    /// and wakes up late.
    Block,
    /// Sleeps until shortly before a slot is due, then spins.
    Busy,
    /// Never sleeps. This takes a whole processor.
    #[default]
    Spin,
}

/// Which system calls move the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Engine {
    /// `recv` and `send`, one datagram each.
    #[default]
    Recv,
    /// `recv` and `send`, with `epoll` for every wait.
    Epoll,
    /// `recvmmsg` and `sendmmsg`: many datagrams a call.
    Mmsg,
    /// The kernel's rings of requests and completions: a spinning thread makes no system call while
    /// nothing arrives.
    IoUring,
}

impl Engine {
    /// Returns true when the kernel can stamp single messages with this engine.
    #[must_use]
    pub const fn takes_stamps(self) -> bool {
        matches!(self, Self::Recv | Self::Epoll)
    }

    /// Says why `io_uring` does not work here, and what is used instead.
    pub(super) fn refusal(error: &std::io::Error) -> String {
        let remedy = match error.raw_os_error() {
            Some(errno::ENOSYS) => "; it needs Linux 5.11",
            Some(errno::EPERM | errno::EACCES) => {
                "; check the sysctl kernel.io_uring_disabled, and whether a container filters \
                 system calls"
            }
            Some(errno::ENOMEM) => "; free memory, or raise `ulimit -l`",
            _ => "",
        };
        let cause = sys::with_usual_remedy(error);
        format!("the engine io_uring does not work here, so recv is used: {cause}{remedy}")
    }
}

/// The scheduling class of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Scheduling {
    /// The ordinary class.
    #[default]
    Other,
    /// SCHED_FIFO with this priority, 1 to 99: the thread runs before every ordinary thread.
    Fifo(u8),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Block => "block",
            Self::Busy => "busy",
            Self::Spin => "spin",
        })
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recv => "recv",
            Self::Epoll => "epoll",
            Self::Mmsg => "mmsg",
            Self::IoUring => "io_uring",
        })
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("other"),
            Self::Fifo(priority) => write!(f, "fifo:{priority}"),
        }
    }
}

/// What the system granted to a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The scheduling class in force.
    pub scheduling: Scheduling,
    /// The processor that the thread is bound to.
    pub cpu: Option<u32>,
    /// What the system refused, why, and what would help; one sentence each.
    pub remarks: Vec<String>,
}

/// Gives the calling thread a scheduling class and a processor, and locks the process's memory. A
/// refusal is no error: the measurement goes on with what the system granted, and says so.
#[must_use]
pub fn prepare(scheduling: Scheduling, cpu: Option<u32>, lock_memory: bool) -> Readiness {
    let mut ready = Readiness {
        scheduling: Scheduling::Other,
        cpu: None,
        remarks: Vec::new(),
    };
    // With the default timer slack, every timed wait of an ordinary thread could be late by 50 us.
    let slack = sys::clock::set_timer_slack(std::time::Duration::from_nanos(1));
    if let Err(error) = slack {
        ready.remarks.push(format!(
            "no exact timers: {error}; waits end up to 50 us late"
        ));
    }
    if let Some(wanted) = cpu {
        match scheduler::set_cpu(wanted) {
            Ok(()) => ready.cpu = Some(wanted),
            Err(error) => {
                let remedy = match scheduler::cpus() {
                    Ok(cpus) => format!("this process may use the processors {cpus:?}"),
                    Err(_) => "the thread runs on any processor".to_owned(),
                };
                let what = format!("not bound to processor {wanted}");
                ready.remarks.push(format!("{what}: {error}; {remedy}"));
            }
        }
    }
    if lock_memory && let Err(error) = scheduler::lock_memory() {
        let remedy = "raise `ulimit -l` or give CAP_IPC_LOCK; page faults may show as outliers";
        let what = "memory is not locked";
        ready.remarks.push(format!("{what}: {error}; {remedy}"));
    }
    let changed = match scheduling {
        Scheduling::Other => scheduler::set_other(),
        Scheduling::Fifo(priority) => scheduler::set_fifo(priority),
    };
    match changed {
        Ok(()) => ready.scheduling = scheduling,
        Err(error) => {
            let remedy = if error.raw_os_error() == Some(errno::EPERM) {
                "give CAP_SYS_NICE (as root: `setcap cap_sys_nice+ep PROGRAM`) or raise `ulimit -r`"
            } else {
                "the thread stays in the ordinary class"
            };
            let what = format!("cannot use the class {scheduling}, so SCHED_OTHER is used");
            ready.remarks.push(format!("{what}: {error}; {remedy}"));
        }
    }
    ready
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_and_leaves_the_thread_as_it_is() {
        let ready = std::thread::spawn(|| prepare(Scheduling::Fifo(100), Some(100_000), false));
        let ready = ready.join().unwrap();
        assert_eq!((ready.scheduling, ready.cpu), (Scheduling::Other, None));
        let texts = ready.remarks.join("\n");
        assert!(
            texts.contains("fifo:100, so SCHED_OTHER is used"),
            "{texts}"
        );
        assert!(texts.contains("processor 100000"), "{texts}");
    }
}
