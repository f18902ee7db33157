//! The report of `stat`.

use schemars::JsonSchema;
use serde::Serialize;
use towline::counters::{CounterReading, ProcessCounters, SessionCounters};

use super::Document;

/// `stat`: all counters of one process, or one counter in each session that has it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StatReport {
    #[serde(flatten)]
    pub(crate) process: ProcessFields,
    /// True when the report has only one counter: the text form then prints only its value.
    #[serde(skip)]
    pub(crate) is_one_counter: bool,
}

/// The fields of [`ProcessCounters`] except `schema` and `version`: the report has its own.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ProcessFields {
    pub(crate) pid: u32,
    pub(crate) command: String,
    pub(crate) uptime_s: f64,
    pub(crate) sessions: Vec<SessionCounters>,
}

impl From<ProcessCounters> for ProcessFields {
    fn from(process: ProcessCounters) -> Self {
        let ProcessCounters {
            pid,
            command,
            uptime_s,
            sessions,
            ..
        } = process;
        Self {
            pid,
            command,
            uptime_s,
            sessions,
        }
    }
}

impl Document for StatReport {
    const SCHEMA: &'static str = "towline.stat";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut text = String::new();
        for session in &self.process.sessions {
            if !self.is_one_counter {
                text += &format!("# {} {}\n", session.role, session.name);
            }
            for counter in &session.counters {
                if self.is_one_counter {
                    text += &format!("{}\n", counter.value);
                } else {
                    let CounterReading {
                        value, unit, help, ..
                    } = counter;
                    text += &format!("{:<34} {value:>18} {unit:<8}  {help}\n", full_name(counter));
                }
            }
        }
        text
    }
}

pub(super) fn full_name(counter: &CounterReading) -> String {
    format!("{}.{}", counter.set, counter.name)
}
