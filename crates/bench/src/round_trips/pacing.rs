//! How well a schedule is kept: 40,000 messages a second for a minute, both ends spinning.

use lab::Lab;
use serde_json::Value;

use super::{Load, Over, ours};

/// The table: slots, what became of them, and how late messages left.
pub(super) fn run(lab: &Lab) -> Result<String, String> {
    let (rate, wait) = (Some(RATE), "spin");
    let report = ours(lab, Over::Udp, Load { rate, wait }, SECONDS)?;
    describe(&report["runs"][0])
}

fn describe(run: &Value) -> Result<String, String> {
    let number = |value: &Value, name: &str| {
        let found = value[name].as_u64();
        found.ok_or_else(|| format!("towline: no {name} in {run}"))
    };
    let count = |name: &str| number(&run["counts"], name);
    let (slots, sent, missed) = (count("slots")?, count("sent")?, count("missed")?);
    let refused = count("refused")?;
    let late = |name: &str| Ok::<_, String>(number(&run["pacing_error"], name)? as f64 / 1e3);
    let is_whole = slots == u64::from(RATE * SECONDS) && sent + missed + refused == slots;
    Ok(format!(
        "{RATE}/s for {SECONDS} s, both ends spinning; bars: every slot accounted for, pacing \
         error p99 below 10 us\n\
         slots         {slots}: {sent} sent, {missed} missed, {refused} refused{}\n\
         answers       {} of {sent}, {} lost\n\
         pacing error  p50 {:.2} us, p99 {:.2} us, p99.9 {:.2} us, max {:.0} us\n\
         disturbed     {} pauses of the measuring thread\n",
        if is_whole {
            ": all accounted for"
        } else {
            ": NOT ALL ACCOUNTED FOR"
        },
        count("answered")?,
        count("lost")?,
        late("p50_ns")?,
        late("p99_ns")?,
        late("p999_ns")?,
        late("max_ns")?,
        number(run, "pauses")?,
    ))
}

const RATE: u32 = 40_000;
const SECONDS: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_nobody_accounts_for_is_told() {
        let run = |sent: u64, missed: u64| {
            let counts = serde_json::json!({
                "slots": 2_400_000_u64, "sent": sent, "missed": missed, "refused": 0,
                "answered": sent, "lost": 0,
            });
            let late = serde_json::json!({
                "p50_ns": 100, "p99_ns": 1_500, "p999_ns": 9_000, "max_ns": 70_000,
            });
            serde_json::json!({ "counts": counts, "pacing_error": late, "pauses": 1 })
        };
        let whole = describe(&run(2_399_999, 1)).unwrap();
        assert!(whole.contains("1 missed, 0 refused: all accounted for"));
        assert!(whole.contains("p99 1.50 us"), "{whole}");
        let short = describe(&run(2_399_999, 0)).unwrap();
        assert!(short.contains("NOT ALL ACCOUNTED FOR"), "{short}");
        assert!(describe(&Value::Null).is_err());
    }
}
