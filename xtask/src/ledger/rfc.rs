//! The sentences of an RFC that contain a key word of RFC 2119 in capitals.
//!
//! In: the text as the RFC editor publishes it, with page breaks. Out: its sections, and their
//! sentences in the order of the text. A paragraph goes on after a page break unless it ends there
//! with a full stop, a colon or a semicolon. A word that is divided at the end of a line is joined
//! again.

use std::fmt;

/// The strength of a requirement: that of the strongest key word in its sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// MUST, MUST NOT, SHALL, REQUIRED.
    Must,
    /// SHOULD, SHOULD NOT, RECOMMENDED.
    Should,
    /// MAY, OPTIONAL.
    May,
}

impl Level {
    pub(super) const ALL: [Self; 3] = [Self::Must, Self::Should, Self::May];

    /// Returns the level of a sentence; `None` for a sentence without a key word.
    fn of(sentence: &str) -> Option<Self> {
        let words = sentence.split(|c: char| !is_of_word(c));
        words
            .filter_map(|word| match word {
                "MUST" | "SHALL" | "REQUIRED" => Some(Self::Must),
                "SHOULD" | "RECOMMENDED" => Some(Self::Should),
                "MAY" | "OPTIONAL" => Some(Self::May),
                _ => None,
            })
            .min()
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::May => "MAY",
        })
    }
}

/// One section, without those below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    /// Such as `5.1.2`.
    pub(super) number: String,
    pub(super) title: String,
    pub(super) sentences: Vec<Sentence>,
}

/// One sentence with a key word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sentence {
    /// The section, and the sentence's number among those of the section: `5.1.2-3`.
    pub(super) id: String,
    pub(super) text: String,
    pub(super) level: Level,
}

/// Returns the sections of `text` in their order.
pub(super) fn sections(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut paragraph = String::new();
    let mut gap = Gap::None;
    for line in text.lines() {
        let line = line.trim_end().trim_start_matches('\u{c}');
        if is_page_foot(line) {
            gap = Gap::Page;
        } else if is_page_head(line) {
        } else if line.is_empty() {
            if gap == Gap::None {
                gap = Gap::Blank;
            }
        } else {
            let goes_on = match gap {
                Gap::None => true,
                Gap::Blank => false,
                Gap::Page => !paragraph.ends_with(['.', ':', ';']),
            };
            let heading = heading(line);
            if !goes_on || heading.is_some() {
                finish(&mut paragraph, &mut sections);
            }
            match heading {
                Some((number, title)) => sections.push(Section {
                    number: number.to_owned(),
                    title: title.to_owned(),
                    sentences: Vec::new(),
                }),
                None => append(&mut paragraph, line),
            }
            gap = Gap::None;
        }
    }
    finish(&mut paragraph, &mut sections);
    sections
}

/// What lies between a line and the one before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gap {
    None,
    Blank,
    Page,
}

fn is_page_foot(line: &str) -> bool {
    line.ends_with(']') && line.contains("[Page ")
}

fn is_page_head(line: &str) -> bool {
    line.starts_with("RFC ") && line.ends_with(|c: char| c.is_ascii_digit())
}

/// Returns number and title when the line is the heading of a section. Lines of the table of
/// contents are told apart by the dots before their page numbers.
fn heading(line: &str) -> Option<(&str, &str)> {
    let (number, title) = line.trim_start().split_once(' ')?;
    let parts = number.trim_end_matches('.');
    let is_number = parts.starts_with(|c: char| c.is_ascii_digit())
        && parts.chars().all(|c| c.is_ascii_digit() || c == '.');
    // One heading of RFC 3208 is indented. Its number has several parts; that of an item in a list
    // has only one.
    let is_placed = !line.starts_with(' ') || parts.contains('.');
    let title = title.trim_start();
    let is_title = title.starts_with(|c: char| c.is_ascii_uppercase()) && !title.contains("...");
    (is_number && is_placed && is_title).then_some((parts, title))
}

fn append(paragraph: &mut String, line: &str) {
    for word in line.split_whitespace() {
        let mut last = paragraph.chars().rev();
        let is_divided = last.next() == Some('-')
            && last.next().is_some_and(is_of_word)
            && word.starts_with(is_of_word);
        if !paragraph.is_empty() && !is_divided {
            paragraph.push(' ');
        }
        paragraph.push_str(word);
    }
}

/// Moves the sentences of a paragraph that have a key word to the last section.
fn finish(paragraph: &mut String, sections: &mut [Section]) {
    let text = std::mem::take(paragraph);
    let Some(section) = sections.last_mut() else {
        return;
    };
    let mut start = 0;
    let gaps = text.match_indices(' ').map(|(at, _)| at);
    let ends = gaps.filter(|&at| is_sentence_end(&text[..at], &text[at + 1..]));
    let ends: Vec<usize> = ends.chain([text.len()]).collect();
    for end in ends {
        let sentence = text[start..end].trim_start();
        start = end;
        if let Some(level) = Level::of(sentence) {
            section.sentences.push(Sentence {
                id: format!("{}-{}", section.number, section.sentences.len() + 1),
                text: sentence.to_owned(),
                level,
            });
        }
    }
}

fn is_sentence_end(before: &str, after: &str) -> bool {
    let is_capital = after.starts_with(|c: char| c.is_ascii_uppercase());
    let is_bracket = after.starts_with('(');
    let is_short_form = before.ends_with("i.e.") || before.ends_with("e.g.");
    let ends = before.ends_with(['.', ':', ';']) && !is_short_form;
    ends && (is_capital || is_bracket) || before.ends_with(".)") && is_capital
}

const fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
   1. Introduction ................... 3
   2.  Procedures .................... 4
1.  Introduction

   The key word is MUST.  Nothing here is (see 2. below).

2.  Procedures

2.1.  Of Sources

   A source MUST send, in
   this order:

      what is hop-by-
      hop, i.e. OPTIONAL; A receiver may ask (if it

Somebody, et. al.           Experimental                    [Page 9]
\u{c}
RFC 3208            PGM Reliable Transport Protocol        December 2001

   MAY).  It SHOULD
   wait.

      2.1.1.  OPT_FIN - Sources

   1. Items MAY be numbered.
";

    #[test]
    fn sentences_with_a_key_word_are_found_in_their_sections() {
        let sections = sections(TEXT);
        let found: Vec<_> = sections
            .iter()
            .flat_map(|section| &section.sentences)
            .map(|found| (&*found.id, found.level, &*found.text))
            .collect();
        let expected = [
            ("1-1", Level::Must, "The key word is MUST."),
            ("2.1-1", Level::Must, "A source MUST send, in this order:"),
            ("2.1-2", Level::May, "what is hop-by-hop, i.e. OPTIONAL;"),
            ("2.1-3", Level::May, "A receiver may ask (if it MAY)."),
            ("2.1-4", Level::Should, "It SHOULD wait."),
            ("2.1.1-1", Level::May, "Items MAY be numbered."),
        ];
        assert_eq!(found[..5], expected[..5]);
        assert_eq!(found[5].0, expected[5].0);
        let titles: Vec<_> = sections.iter().map(|it| &*it.title).collect();
        assert_eq!(
            titles,
            [
                "Introduction",
                "Procedures",
                "Of Sources",
                "OPT_FIN - Sources"
            ]
        );
    }
}
