//! What `clock` has to say.

use serde::Serialize;
use towline::clock::ClockReport;

use super::Document;

/// A host's clocks.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct ClockDocument(pub(crate) ClockReport);

impl Document for ClockDocument {
    const SCHEMA: &'static str = "towline.clock";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let report = &self.0;
        let ptp: Vec<String> = report
            .ptp
            .iter()
            .map(|clock| format!("{} ({})", clock.device, clock.name))
            .collect();
        let state = if report.is_synchronised {
            "synchronised"
        } else {
            "not synchronised"
        };
        let leap = if report.has_leap {
            ", a leap second is to come"
        } else {
            ""
        };
        format!(
            "source     {} (of {}); steps of {} ns, {} ns a reading\n\
             PTP        {}\n\
             wall clock {state}, wrong by at most {} us, estimated {} us; {} us still to correct, \
             runs {} ppb fast, TAI less UTC {} s{leap}\n\
             one-way    {}\n",
            report.source,
            report.sources.join(", "),
            report.step_ns,
            report.reading_ns,
            if ptp.is_empty() {
                "no hardware clock".to_owned()
            } else {
                ptp.join(", ")
            },
            report.error_ns_max / 1_000,
            report.error_ns_estimated / 1_000,
            report.offset_ns / 1_000,
            report.frequency_ppb,
            report.tai_offset_s,
            report.one_way,
        )
    }
}
