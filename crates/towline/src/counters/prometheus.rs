//! The counters of a process in the text format that Prometheus scrapes (version 0.0.4).
//!
//! Every counter is a metric `towline_SET_NAME_total` with a sample for each session that has the
//! counter. The metric's help text comes from the counter's declaration. The labels tell the
//! sessions apart: `session` (the session's number), `role` and `name`.

use std::fmt::{self, Write as _};

use super::{CounterReading, ProcessCounters, SessionCounters};

impl ProcessCounters {
    /// Writes every counter of every session in the text format of Prometheus.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        self.write_prometheus(&mut text)
            .expect("writing to a String cannot fail");
        text
    }

    fn write_prometheus(&self, text: &mut String) -> fmt::Result {
        let (pid, command) = (self.pid, Escaped(&self.command));
        head(
            text,
            "towline_process_info",
            "gauge",
            "what serves these counters",
        )?;
        writeln!(
            text,
            "towline_process_info{{pid=\"{pid}\",command=\"{command}\"}} 1"
        )?;
        let help = "seconds since the process began to serve its counters";
        head(text, "towline_uptime_seconds", "gauge", help)?;
        writeln!(text, "towline_uptime_seconds {}", self.uptime_s)?;
        let help = "seconds since the counters of a session were taken";
        head(text, "towline_snapshot_age_seconds", "gauge", help)?;
        for session in &self.sessions {
            let labels = Labels(session);
            writeln!(
                text,
                "towline_snapshot_age_seconds{{{labels}}} {}",
                session.age_s
            )?;
        }
        let help = "receivers that take part in a session";
        self.write_gauge(text, "towline_receivers", help, |session| {
            session.receivers.map(u64::from)
        })?;
        let help = "packets sent that the slowest receiver does not have yet";
        self.write_gauge(text, "towline_behind_packets", help, |session| {
            session.behind
        })?;
        // All samples of a metric must stand together. So the first session that has a counter also
        // brings the samples of the later sessions, which then leave that counter out.
        for (at, session) in self.sessions.iter().enumerate() {
            for counter in &session.counters {
                let is_same = |other: &&CounterReading| {
                    other.set == counter.set && other.name == counter.name
                };
                let mut before = self.sessions[..at].iter();
                if before.any(|earlier| earlier.counters.iter().any(|it| is_same(&it))) {
                    continue;
                }
                let name = format!("towline_{}_{}_total", counter.set, counter.name);
                head(text, &name, "counter", &counter.help)?;
                for session in &self.sessions[at..] {
                    if let Some(reading) = session.counters.iter().find(is_same) {
                        writeln!(text, "{name}{{{}}} {}", Labels(session), reading.value)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a gauge with a sample for each session for which `value` returns a number.
    fn write_gauge(
        &self,
        text: &mut String,
        name: &str,
        help: &str,
        value: impl Fn(&SessionCounters) -> Option<u64>,
    ) -> fmt::Result {
        let sessions = self.sessions.iter();
        let samples = sessions.filter_map(|session| Some((session, value(session)?)));
        for (at, (session, value)) in samples.enumerate() {
            if at == 0 {
                head(text, name, "gauge", help)?;
            }
            writeln!(text, "{name}{{{}}} {value}", Labels(session))?;
        }
        Ok(())
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

/// The labels that distinguish a session from others.
struct Labels<'a>(&'a SessionCounters);

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SessionCounters { id, role, name, .. } = self.0;
        let (role, name) = (Escaped(role), Escaped(name));
        write!(f, "session=\"{id}\",role=\"{role}\",name=\"{name}\"")
    }
}

/// A label's value, written with escapes: command lines and names may hold any character.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            char => f.write_char(char),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: u64, name: &str, counters: &[(&str, &str, u64)]) -> SessionCounters {
        let counters = counters.iter().map(|(set, name, value)| CounterReading {
            set: (*set).to_owned(),
            name: (*name).to_owned(),
            unit: "packets".to_owned(),
            help: format!("what {name} counts"),
            value: *value,
        });
        SessionCounters {
            id,
            role: "publisher".to_owned(),
            name: name.to_owned(),
            age_s: 0.25,
            counters: counters.collect(),
            receivers: (id == 0).then_some(12),
            behind: (id == 1).then_some(34),
        }
    }

    #[test]
    fn samples_of_a_metric_stand_together_under_one_head() {
        let process = ProcessCounters {
            schema: ProcessCounters::SCHEMA.to_owned(),
            version: ProcessCounters::VERSION,
            pid: 17,
            command: "towline pub \"a\\b\"\n".to_owned(),
            uptime_s: 2.5,
            sessions: vec![
                session(
                    0,
                    "239.192.0.1:7500",
                    &[("source", "naks", 3), ("drop", "own", 1)],
                ),
                session(
                    1,
                    "239.192.0.2:7500",
                    &[("source", "naks", 4), ("source", "spms", 5)],
                ),
            ],
        };
        insta::assert_snapshot!(process.prometheus(), @r#"
        # HELP towline_process_info what serves these counters
        # TYPE towline_process_info gauge
        towline_process_info{pid="17",command="towline pub \"a\\b\"\n"} 1
        # HELP towline_uptime_seconds seconds since the process began to serve its counters
        # TYPE towline_uptime_seconds gauge
        towline_uptime_seconds 2.5
        # HELP towline_snapshot_age_seconds seconds since the counters of a session were taken
        # TYPE towline_snapshot_age_seconds gauge
        towline_snapshot_age_seconds{session="0",role="publisher",name="239.192.0.1:7500"} 0.25
        towline_snapshot_age_seconds{session="1",role="publisher",name="239.192.0.2:7500"} 0.25
        # HELP towline_receivers receivers that take part in a session
        # TYPE towline_receivers gauge
        towline_receivers{session="0",role="publisher",name="239.192.0.1:7500"} 12
        # HELP towline_behind_packets packets sent that the slowest receiver does not have yet
        # TYPE towline_behind_packets gauge
        towline_behind_packets{session="1",role="publisher",name="239.192.0.2:7500"} 34
        # HELP towline_source_naks_total what naks counts
        # TYPE towline_source_naks_total counter
        towline_source_naks_total{session="0",role="publisher",name="239.192.0.1:7500"} 3
        towline_source_naks_total{session="1",role="publisher",name="239.192.0.2:7500"} 4
        # HELP towline_drop_own_total what own counts
        # TYPE towline_drop_own_total counter
        towline_drop_own_total{session="0",role="publisher",name="239.192.0.1:7500"} 1
        # HELP towline_source_spms_total what spms counts
        # TYPE towline_source_spms_total counter
        towline_source_spms_total{session="1",role="publisher",name="239.192.0.2:7500"} 5
        "#);
    }
}
