//! Functions fit on a screen.

use super::{Finding, Source};

/// Finds the functions of one file that are too long.
pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    for function in functions(&source.code) {
        if function.line_count > FUNCTION_LINES_MAX {
            let text = format!(
                "{} lines; {FUNCTION_LINES_MAX} at most",
                function.line_count
            );
            let finding = Finding::new("function-length", &source.path, &text);
            let finding = finding.at(function.line).about(&function.name);
            findings.push(finding.sized(function.line_count));
        }
    }
}

/// Where a function starts, and its lines from `fn` to the closing brace.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    line: usize,
    line_count: usize,
}

/// The functions with a body in masked code, nested ones too.
fn functions(code: &str) -> Vec<Function> {
    let chars: Vec<char> = code.chars().collect();
    let mut line = 1;
    let mut found = Vec::new();
    for i in 0..chars.len() {
        line += usize::from(chars[i] == '\n');
        let is_word_before = i > 0 && (chars[i - 1].is_alphanumeric() || chars[i - 1] == '_');
        if chars[i..].starts_with(&['f', 'n', ' ']) && !is_word_before {
            let rest = &chars[i + 3..];
            let is_name = |c: &&char| c.is_alphanumeric() || matches!(c, '_' | '$');
            let name: String = rest.iter().take_while(is_name).collect();
            if let (false, Some(breaks)) = (name.is_empty(), breaks_in_body(rest)) {
                found.push(Function {
                    name,
                    line,
                    line_count: breaks + 1,
                });
            }
        }
    }
    found
}

/// Line breaks from a function's name to its closing brace; `None` for one without a body.
fn breaks_in_body(rest: &[char]) -> Option<usize> {
    let (mut brackets, mut braces, mut breaks) = (0_i32, 0_i32, 0);
    for &c in rest {
        match c {
            '\n' => breaks += 1,
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if brackets == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 {
                    return Some(breaks);
                }
            }
            _ => {}
        }
    }
    None
}

const FUNCTION_LINES_MAX: usize = 70;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_from_name_to_closing_brace() {
        let code = "\
trait T { fn none(&self) -> [u8; 4]; }
fn one() {}
pub fn three<T>(
 a: fn(u8)) {
}
";
        let list: Vec<_> = functions(code)
            .into_iter()
            .map(|f| (f.name, f.line, f.line_count))
            .collect();
        assert_eq!(list, [("one".to_owned(), 2, 1), ("three".to_owned(), 3, 3)]);
    }
}
