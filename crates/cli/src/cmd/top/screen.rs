//! Puts the text of a look at all counters onto a screen of so many rows.
//!
//! ```text
//!  4711     towline pub ...         headings: whatever does not begin with four blanks
//!    publisher 239.192.0.1:7500
//!      source.odata_packets   ...   counters: a share of the rows for each session,
//!      source.spm_packets     ...   those that move first
//!      ... 12 more                  and how many are left out
//!  q leaves; ...                    the last row
//! ```

use std::time::Duration;

use super::terminal::Size;

/// The whole screen, with what the terminal needs to put it over the one before. The cursor stays
/// in the last row, so that nothing scrolls.
pub(super) fn fit(text: &str, size: Size, interval: Duration) -> String {
    let rows = size.rows.saturating_sub(1);
    let blocks = blocks(text);
    let (mut lines, hidden) = match limit(&blocks, rows) {
        Some(limit) => cut_counters(&blocks, limit),
        None => cut_sessions(&blocks, rows),
    };
    let mut last = format!("q leaves; a look every {interval:?}");
    if let Some(hidden) = hidden {
        last += &format!("; {hidden} hidden: --once shows all");
    }
    lines.resize(rows, String::new());
    lines.push(last);
    let lines: Vec<String> = lines
        .iter()
        .map(|line| line.chars().take(size.columns).collect::<String>() + CLEAR_REST)
        .collect();
    format!("{HOME}{}", lines.join("\n"))
}

/// The headings of a session (of its process too, if it is the first), and its counters.
#[derive(Debug, Default)]
struct Block<'a> {
    headings: Vec<&'a str>,
    counters: Vec<&'a str>,
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for line in text.lines() {
        let is_counter = line.starts_with("    ");
        let is_open = |block: &&mut Block<'_>| is_counter || block.counters.is_empty();
        match blocks.last_mut().filter(is_open) {
            Some(block) if is_counter => block.counters.push(line),
            Some(block) => block.headings.push(line),
            None => blocks.push(Block {
                headings: vec![line],
                counters: Vec::new(),
            }),
        }
    }
    blocks
}

/// The most counters of each session with which all sessions have room; none when not even their
/// headings have.
fn limit(blocks: &[Block<'_>], rows: usize) -> Option<usize> {
    let most = blocks.iter().map(|block| block.counters.len()).max();
    let needed = |limit: usize| -> usize {
        let lines = blocks.iter().map(|block| {
            let cut = usize::from(block.counters.len() > limit);
            block.headings.len() + block.counters.len().min(limit) + cut
        });
        lines.sum()
    };
    (0..=most.unwrap_or(0))
        .rev()
        .find(|&limit| needed(limit) <= rows)
}

/// The lines, and in words what is left out.
fn cut_counters(blocks: &[Block<'_>], limit: usize) -> (Vec<String>, Option<String>) {
    let mut lines = Vec::new();
    let mut hidden = 0;
    for block in blocks {
        lines.extend(block.headings.iter().map(ToString::to_string));
        let count = block.counters.len();
        if count <= limit {
            lines.extend(block.counters.iter().map(ToString::to_string));
            continue;
        }
        let (moving, still): (Vec<&str>, Vec<&str>) =
            block.counters.iter().partition(|line| line.ends_with("/s"));
        let shown = moving.iter().chain(&still).take(limit);
        lines.extend(shown.map(ToString::to_string));
        lines.push(format!("    ... {} more", count - limit));
        hidden += count - limit;
    }
    let hidden = (hidden > 0).then(|| format!("{hidden} counters"));
    (lines, hidden)
}

/// As many headings as there is room for.
fn cut_sessions(blocks: &[Block<'_>], rows: usize) -> (Vec<String>, Option<String>) {
    let mut lines = Vec::new();
    let mut shown = 0;
    for block in blocks {
        if lines.len() + block.headings.len() > rows {
            break;
        }
        lines.extend(block.headings.iter().map(ToString::to_string));
        shown += 1;
    }
    let hidden = blocks.len() - shown;
    let text = match hidden {
        0 => "all counters".to_owned(),
        hidden => format!("{hidden} sessions, all counters"),
    };
    (lines, Some(text))
}

const HOME: &str = "\x1b[H";
/// From the cursor to the end of its row.
const CLEAR_REST: &str = "\x1b[K";

#[cfg(test)]
mod tests {
    use super::*;

    /// What is on the screen, without what steers the terminal.
    fn shown(text: &str, rows: usize, columns: usize) -> Vec<String> {
        let screen = fit(text, Size { rows, columns }, Duration::from_secs(1));
        let screen = screen.replace(HOME, "").replace(CLEAR_REST, "");
        screen.split('\n').map(str::to_owned).collect()
    }

    fn session(name: &str, still: usize, moving: usize) -> String {
        let still = (0..still).map(|n| format!("    {name}.still_{n}   7\n"));
        let moving = (0..moving).map(|n| format!("    {name}.moving_{n}   7   3/s\n"));
        format!(
            "  publisher {name}\n{}",
            still.chain(moving).collect::<String>()
        )
    }

    #[test]
    fn what_has_room_is_shown_whole() {
        let text = format!("17  towline pub\n{}", session("a", 3, 0));
        let lines = shown(&text, 20, 80);
        assert_eq!(lines.len(), 20);
        assert_eq!(lines[..5].join("\n") + "\n", text);
        assert_eq!(lines[19], "q leaves; a look every 1s");
    }

    #[test]
    fn a_short_screen_is_shared_and_says_what_it_hides() {
        let text = format!(
            "17  towline pub\n{}{}",
            session("a", 2, 0),
            session("b", 30, 2)
        );
        let lines = shown(&text, 12, 80);
        assert_eq!(lines.len(), 12);
        assert_eq!(
            lines[3], "    a.still_1   7",
            "a small session is whole: {lines:?}"
        );
        assert_eq!(lines[5], "    b.moving_0   7   3/s", "{lines:?}");
        assert_eq!(lines[10], "    ... 27 more", "{lines:?}");
        assert!(lines[11].contains("27 counters hidden"), "{lines:?}");
    }

    #[test]
    fn no_screen_is_too_small_and_no_line_too_long() {
        let text: String = (0..9)
            .map(|n| {
                format!(
                    "{n}  towline pub {}\n{}",
                    "x".repeat(99),
                    session("a", 9, 9)
                )
            })
            .collect();
        for rows in 1..40 {
            let lines = shown(&text, rows, 40);
            assert_eq!(lines.len(), rows);
            assert!(lines.iter().all(|line| line.chars().count() <= 40));
        }
        let lines = shown(&text, 9, 80);
        assert!(
            lines[8].contains("5 sessions, all counters hidden"),
            "{lines:?}"
        );
        assert!(shown("", 2, 80)[1].starts_with("q leaves"));
    }
}
