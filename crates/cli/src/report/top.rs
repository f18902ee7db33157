//! What `top` shows after one reading of the counters.

use schemars::JsonSchema;
use serde::Serialize;
use towline::counters::{CounterReading, ProcessCounters, SessionCounters};

use super::{Document, quantity::per_second, stat::full_name};

/// The report of `top`: every process with its sessions and counters.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TopReport {
    pub(crate) processes: Vec<ProcessCounters>,
    /// The counters of the previous reading and the seconds since then, for rates.
    #[serde(skip)]
    pub(crate) before: Option<(Vec<ProcessCounters>, f64)>,
    /// True when counters that are zero are shown, too.
    #[serde(skip)]
    pub(crate) is_complete: bool,
}

impl TopReport {
    /// Returns how fast a counter of a session has grown since the last reading, in counts a
    /// second.
    pub(crate) fn rate(
        &self,
        pid: u32,
        session: &SessionCounters,
        counter: &CounterReading,
    ) -> Option<f64> {
        let (before, seconds) = self.before.as_ref()?;
        let process = before.iter().find(|process| process.pid == pid)?;
        let session = process
            .sessions
            .iter()
            .find(|known| known.id == session.id)?;
        let mut same = session.counters.iter();
        let known = same.find(|known| known.set == counter.set && known.name == counter.name)?;
        Some(per_second(
            counter.value.saturating_sub(known.value),
            *seconds,
        ))
    }
}

impl Document for TopReport {
    const SCHEMA: &'static str = "towline.top";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        if self.processes.is_empty() {
            return "no process of this user has a session of Towline\n".to_owned();
        }
        let mut text = String::new();
        for process in &self.processes {
            text += &format!("{:<8} {}\n", process.pid, process.command);
            for session in &process.sessions {
                text += &self.session(process, session);
            }
        }
        text
    }
}

impl TopReport {
    fn session(&self, process: &ProcessCounters, session: &SessionCounters) -> String {
        let mut text = format!("  {} {}\n", session.role, session.name);
        for counter in &session.counters {
            if counter.value == 0 && !self.is_complete {
                continue;
            }
            let rate = self
                .rate(process.pid, session, counter)
                .filter(|rate| *rate > 0.0);
            let rate = rate
                .map(|rate| format!("{rate:>14.0}/s"))
                .unwrap_or_default();
            text += &format!(
                "    {:<34} {:>18}{rate}\n",
                full_name(counter),
                counter.value
            );
        }
        text
    }
}
