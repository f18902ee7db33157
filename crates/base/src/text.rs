//! Texts from elsewhere, made fit for people: a name or an explanation from the network or a file
//! then neither commands a terminal nor looks like another line.

use std::borrow::Cow;

/// Returns one line of at most `bytes_max` bytes: characters that are not [`is_plain`] are escaped,
/// as in `\u{1b}`, and in a text with such characters each backslash is doubled. A text that is cut
/// ends with `...`, which counts as three of the bytes.
///
/// **Cost**: allocates only for a text that has such characters or is too long.
#[must_use]
pub fn printable(text: &str, bytes_max: usize) -> Cow<'_, str> {
    let has_odd = !text.chars().all(is_plain);
    if text.len() <= bytes_max && !has_odd {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut kept) = (String::new(), 0);
    for c in text.chars() {
        if has_odd && (!is_plain(c) || c == '\\') {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        if shown.len() > bytes_max {
            shown.truncate(kept);
            shown.push_str(&CUT[..CUT.len().min(bytes_max)]);
            break;
        }
        if shown.len() + CUT.len() <= bytes_max {
            kept = shown.len();
        }
    }
    Cow::Owned(shown)
}

/// Returns several lines of a program's own, in which texts from elsewhere may stand: like
/// [`printable`], but line ends stay, a backslash is not doubled, and nothing is cut.
///
/// This is the last net before a terminal. A text from elsewhere goes through [`printable`] before
/// it becomes part of a line: afterwards nobody can tell its line ends from the program's own.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let is_fit = |c: char| c == '\n' || is_plain(c);
    if text.chars().all(is_fit) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_fit(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    Cow::Owned(shown)
}

/// Returns true for characters that only show themselves: no control characters, no line or
/// paragraph separators, and no format characters, many of which are invisible or change the
/// direction of what follows.
///
/// **Spec**: all but the general categories Cc, Cf, Zl and Zp of Unicode 16.
#[must_use]
pub fn is_plain(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let is_format = FORMATS.binary_search_by(|&(first, last)| {
        if last < c {
            std::cmp::Ordering::Less
        } else if first > c {
            std::cmp::Ordering::Greater
        } else {
            std::cmp::Ordering::Equal
        }
    });
    !c.is_control() && is_format.is_err()
}

const CUT: &str = "...";

/// The categories Cf, Zl and Zp, in order; first and last of each range.
const FORMATS: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_would_break_the_line_is_escaped_and_nothing_else() {
        for (text, expected) in [
            ("über/a b 好 👍", "über/a b 好 👍"),
            ("a\\b", "a\\b"),
            ("new\nline", "new\\nline"),
            ("a\\b\u{1b}[2J", "a\\\\b\\u{1b}[2J"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("gpj.\u{202e}exe", "gpj.\\u{202e}exe"),
            ("a\u{2028}b\u{feff}", "a\\u{2028}b\\u{feff}"),
        ] {
            assert_eq!(printable(text, 256), expected);
        }
        assert_eq!(printable("abcdef", 6), "abcdef");
        assert_eq!(printable("abcdefg", 6), "abc...");
        assert_eq!(printable("aüüü", 6), "aü...");
        assert_eq!(printable("\u{1b}\u{1b}", 8), "...");
        assert_eq!(printable("long", 2), "..");
        assert_eq!(
            printable_lines("ours\n  C:\\x\u{1b}[m\r\n"),
            "ours\n  C:\\x\\u{1b}[m\\r\n"
        );
    }

    #[test]
    fn the_ranges_are_in_order() {
        assert!(FORMATS.is_sorted() && FORMATS.iter().all(|(first, last)| first <= last));
        let all = (0..=0x10_ffff).filter_map(char::from_u32);
        assert_eq!(
            all.filter(|&c| !is_plain(c) && !c.is_control()).count(),
            172
        );
    }

    proptest! {
        #[test]
        fn nothing_commands_a_terminal(
            text in any::<String>(),
            odd in "[\\x00-\\x1f\\x7f-\\x9f\u{200e}\u{202a}-\u{202e}\u{2066}-\u{2069}a\\\\]{0,40}",
            max in 0_usize..100,
        ) {
            for text in [text.clone(), odd.clone(), text + &odd] {
                let line = printable(&text, max);
                prop_assert!(line.chars().all(is_plain) && line.len() <= max);
                let whole = printable(&text, usize::MAX);
                prop_assert!(whole.chars().all(is_plain));
                prop_assert!(whole.len() <= 10 * text.len());
                let lines = printable_lines(&text);
                prop_assert!(lines.chars().all(|c| c == '\n' || is_plain(c)));
                prop_assert_eq!(lines.matches('\n').count(), text.matches('\n').count());
            }
        }
    }
}
