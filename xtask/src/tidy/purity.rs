//! The pure crates have no clock, sleep, thread, lock, randomness or hash order, and unsafe
//! code has one home.

use super::{Finding, Rules, Source, rules::directory};

/// Checks one Rust file.
pub(super) fn check(source: &Source, rules: &Rules, findings: &mut Vec<Finding>) {
    let Some((name, rule)) = source
        .crate_name()
        .and_then(|name| rules.crates.get_key_value(name))
    else {
        return;
    };
    let home = format!("{}/src/", directory(name));
    let Some(inside) = source.path.strip_prefix(&home) else {
        return;
    };
    let is_root = inside == "lib.rs" || inside == "main.rs";
    if is_root && !rule.may_be_unsafe && !source.code.contains("#![forbid(unsafe_code)]") {
        let text = "every crate but the homes of unsafe says #![forbid(unsafe_code)]";
        findings.push(Finding::new("unsafe", &source.path, text));
    }
    let first_unsafe = source.identifiers().find(|(_, word)| *word == "unsafe");
    if let (false, Some((line, _))) = (rule.may_be_unsafe, first_unsafe) {
        let text = "unsafe code outside its homes (xtask/rules.toml)";
        findings.push(Finding::new("unsafe", &source.path, text).at(line));
    }
    // A program beside a pure library reads clocks and starts threads for it.
    if rule.is_pure && !inside.starts_with("bin/") {
        for (what, line) in impurities(&source.code) {
            let text = format!("{what} in a pure crate: take it as an argument");
            findings.push(
                Finding::new("purity", &source.path, &text)
                    .at(line)
                    .about(what),
            );
        }
    }
}

/// What a pure crate may not name, with the line of each use.
fn impurities(code: &str) -> Vec<(&'static str, usize)> {
    let mut found = Vec::new();
    for (line, number) in code.lines().zip(1..) {
        for what in IMPURE {
            let is_used = line.match_indices(what).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let after = line[at + what.len()..].chars().next();
                let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                !is_word(before) && (what.ends_with(':') || !is_word(after))
            });
            if is_used {
                found.push((what, number));
            }
        }
    }
    found
}

const IMPURE: [&str; 16] = [
    "Instant::now",
    "SystemTime",
    "thread::sleep",
    "thread::spawn",
    "thread::scope",
    "HashMap",
    "HashSet",
    "RandomState",
    "rand::",
    "getrandom",
    "Mutex",
    "RwLock",
    "UdpSocket",
    "TcpStream",
    "TcpListener",
    "thread_local",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_and_hash_order_are_found_and_words_that_contain_them_are_not() {
        let code =
            "let t = std::time::Instant::now();\nuse std::collections::HashMap;\nrand::random()";
        let found: Vec<_> = impurities(code).into_iter().map(|(what, _)| what).collect();
        assert_eq!(found, ["Instant::now", "HashMap", "rand::"]);
        assert!(impurities("MyHashMapping operand::x Instant::nowhere").is_empty());
    }
}
