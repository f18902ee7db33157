//! The flag `--every`: the interval at which a command prints lines while it measures.

use std::time::Duration;

use clap::Args;

use super::duration;

/// Whether a command also prints lines while it measures.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct EveryArgs {
    /// Also print what was measured in each interval of this length (100ms to 1h; capture: whole
    /// seconds): a line on standard error, or with --json an object on standard output, which is
    /// then JSON Lines
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(crate) every: Option<Duration>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let every = duration(text).map_err(|error| error.to_string())?;
    if (EVERY_MIN..=EVERY_MAX).contains(&every) {
        return Ok(every);
    }
    Err(format!("an interval is {EVERY_MIN:?} to an hour"))
}

/// The shortest interval; printing a shorter one would disturb the measurement.
const EVERY_MIN: Duration = Duration::from_millis(100);
const EVERY_MAX: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_neither_a_flood_nor_for_ever() {
        assert_eq!(interval("1"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("100ms"), Ok(EVERY_MIN));
        for wrong in ["0", "99ms", "2h", "often"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
