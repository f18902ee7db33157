//! The rule about panics: no panic leaves a function that C calls. In the crates on `cabi`, the
//! whole body of such a function is one call that stops panics. That is `guard`, `attempt`, or a
//! function whose own body is such a call.
//!
//! It reads the text, not the syntax: a body of another shape is a finding, even where no panic is
//! possible. Such functions are listed as `cannot_panic` in `xtask/rules.toml`.

use std::collections::BTreeSet;

use super::{Finding, Rules, Source, rules::directory, source::has_extension};

/// Checks all crates that depend on `cabi`.
pub(super) fn check(rules: &Rules, sources: &[Source], findings: &mut Vec<Finding>) {
    let mut listed: BTreeSet<&str> = rules.cannot_panic.iter().map(String::as_str).collect();
    let of_c = rules.crates.iter();
    let of_c = of_c.filter(|(_, rule)| rule.may_depend_on.iter().any(|name| name == "cabi"));
    for (short, _) in of_c {
        let within = format!("{}/src/", directory(short));
        let rust = |it: &&Source| it.path.starts_with(&within) && has_extension(&it.path, "rs");
        let functions: Vec<Function<'_>> = sources.iter().filter(rust).flat_map(read).collect();
        let stopping = stopping(&functions);
        for function in functions.iter().filter(|it| it.is_of_c) {
            let name = function.name;
            let text = match (function.stops_panics(&stopping), listed.remove(name)) {
                (true, false) | (false, true) => continue,
                (false, false) => format!(
                    "C calls {name}, and a panic in it would end the program: let its whole body \
                     be one call of cabi::guard"
                ),
                (true, true) => format!("{name} stops panics: take it off cannot_panic"),
            };
            findings.push(Finding::new("boundary", function.path, &text).at(function.line));
        }
    }
    for name in listed {
        let text = format!("C calls no function {name}: take it off cannot_panic");
        findings.push(Finding::new("boundary", "xtask/rules.toml", &text));
    }
}

/// A function, as its text has it.
struct Function<'a> {
    name: &'a str,
    path: &'a str,
    line: usize,
    is_of_c: bool,
    /// The body without comments, on one line.
    body: String,
}

impl Function<'_> {
    /// Returns true when a panic cannot leave it, as the functions in `stopping` let none out.
    fn stops_panics(&self, stopping: &BTreeSet<&str>) -> bool {
        let body = self.body.strip_suffix(';').unwrap_or(&self.body);
        let body = body.strip_suffix(".into()").unwrap_or(body).trim_end();
        if body.is_empty() || body == "std::process::abort()" {
            return true;
        }
        let call = body.split_once('(');
        let Some((callee, Some(arguments))) = call.map(|(a, b)| (a, b.strip_suffix(')'))) else {
            return false;
        };
        let is_path = callee.chars().all(|c| is_word(c) || c == ':');
        let name = callee.rsplit(':').next().unwrap_or_default();
        is_path && stopping.contains(name) && are_harmless(arguments)
    }
}

/// Returns the names of the functions that stop panics, of all that a crate has.
fn stopping<'a>(functions: &[Function<'a>]) -> BTreeSet<&'a str> {
    let mut found: BTreeSet<&str> = STOPPING.into();
    loop {
        let before = found.len();
        for function in functions {
            // Where functions share a name, each must stop them.
            let mut same = functions.iter().filter(|it| it.name == function.name);
            if same.all(|it| it.stops_panics(&found)) {
                found.insert(function.name);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// Returns true for the arguments of one call, none of which runs anything before the call.
fn are_harmless(arguments: &str) -> bool {
    let (mut depth, mut least) = (0_i32, 0_i32);
    let each: Vec<&str> = arguments
        .split(|c| {
            depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
            least = least.min(depth);
            c == ',' && depth == 0
        })
        .collect();
    // Below 0, the call was over already, and what is here is behind it.
    least == 0 && each.into_iter().all(is_harmless)
}

/// Returns true for an argument that runs nothing before the call: a closure, or a value that no
/// function makes.
fn is_harmless(argument: &str) -> bool {
    let argument = argument.trim();
    if argument.starts_with('|') {
        return true;
    }
    let value = argument.replace("null_mut()", "").replace("null()", "");
    let mut pairs = value.chars().zip(value.chars().skip(1));
    !pairs.any(|(before, c)| is_word(before) && "([!".contains(c))
}

/// Returns the functions that a source defines before its tests.
fn read(source: &Source) -> impl Iterator<Item = Function<'_>> {
    let code = source
        .text
        .split("\n#[cfg(test)]")
        .next()
        .unwrap_or_default();
    let heads = code.match_indices("fn ").filter_map(|(at, head)| {
        let line_start = code[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = code[line_start..at].trim_start();
        let rest = &code[at + head.len()..];
        let name = &rest[..rest.find(|c| !is_word(c))?];
        (!before.starts_with("//") && !name.is_empty()).then_some((at, before, name, rest))
    });
    heads.filter_map(|(at, before, name, rest)| {
        let mut depth = 0_i32;
        let body = rest.find(|c| {
            depth += i32::from("([".contains(c)) - i32::from(")]".contains(c));
            depth == 0 && "{;".contains(c)
        });
        let body = &rest[body?..];
        Some(Function {
            name,
            path: &source.path,
            line: code[..at].lines().count(),
            is_of_c: before.contains("extern \""),
            body: within_braces(body.strip_prefix('{')?),
        })
    })
}

/// Returns the text up to the brace that closes, on one line and without comments.
fn within_braces(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let code: Vec<&str> = lines.filter(|line| !line.starts_with("//")).collect();
    let mut depth = 0_i32;
    let whole = code.join(" ");
    let end = whole.find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth < 0
    });
    whole[..end.unwrap_or(whole.len())].trim().to_owned()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What stops panics: `cabi::guard`, and `attempt` of `capi`, which calls it.
const STOPPING: [&str; 2] = ["guard", "attempt"];

#[cfg(test)]
mod tests {
    use super::*;

    fn told(body: &str) -> bool {
        let text = format!(
            "extern \"C\" fn of_c(a: Option<&str>) -> i32 {{\n    {body}\n}}\n\n\
             fn inner(a: u8) -> i32 {{\n    // A brace {{\n    guard(0, || {{ a / 2 }})\n}}\n\n\
             fn outer() -> i32 {{ work(); 7 }}\n"
        );
        let path = "crates/c/src/lib.rs".to_owned();
        let byte_count = text.len();
        let source = Source {
            path,
            byte_count,
            text,
        };
        let functions: Vec<_> = read(&source).collect();
        assert_eq!(functions.iter().filter(|it| it.is_of_c).count(), 1);
        !functions[0].stops_panics(&stopping(&functions))
    }

    #[test]
    fn a_body_that_can_panic_outside_its_guard_is_found() {
        for fine in [
            "",
            "guard(-1, || work(a))",
            "guard(Status::Error, || { work(a); 7 })\n    .into()",
            "cabi::guard((), || work(a));",
            "guard(std::ptr::null_mut(), || work(a))",
            "inner(a)",
            "self::inner(7)",
            "std::process::abort()",
        ] {
            assert!(!told(fine), "{fine}");
        }
        for wrong in [
            "work(a)",
            "outer()",
            "inner(a.unwrap())",
            "inner(work(a))",
            "inner(list[7])",
            "guard(work(a), || 7)",
            "work(a);\n    guard(0, || 7)",
            "guard(0, || 7) + work(a)",
            "let kept = guard(0, || 7);\n    work(kept)",
            "guard(0, || 7); work(a)",
        ] {
            assert!(told(wrong), "{wrong}");
        }
    }
}
