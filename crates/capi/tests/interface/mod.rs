//! What a compiled program relies on, held against `abi.snap`: each function with its declaration,
//! each structure with its size and the places of its fields, each number of an enumeration.

use std::{env, fs, path::Path};

use super::{HERE, compiled, directory, finish, kit};

/// The header's statements, without comments, directives and line ends.
fn statements() -> Vec<String> {
    let header = fs::read_to_string(format!("{HERE}/include/towline.h")).unwrap();
    let mut text = String::new();
    for (nth, part) in header.split("/*").enumerate() {
        let behind = part.split_once("*/").map_or(part, |(_, behind)| behind);
        text += if nth == 0 { part } else { behind };
    }
    let is_directive = |line: &&str| line.starts_with('#') || line.starts_with("extern");
    let lines = text.lines().filter(|line| !is_directive(line));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    let (mut statements, mut depth) = (vec![String::new()], 0_i32);
    for c in words.join(" ").chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        // The brace of `extern "C"`, which only a compiler of C++ sees.
        if depth < 0 {
            break;
        }
        match (c, depth) {
            (';', 0) => statements.push(String::new()),
            (c, _) => statements.last_mut().unwrap().push(c),
        }
    }
    let whole = statements.iter().map(|it| it.trim().to_owned());
    whole.filter(|it| !it.is_empty()).collect()
}

/// The lines of C that print the layout of a structure or the numbers of an enumeration.
fn prints(statement: &str) -> Option<String> {
    let (head, rest) = statement.split_once(" {")?;
    let (body, name) = rest.rsplit_once('}')?;
    let name = name.trim();
    let print =
        |format: &str, arguments: &str| format!("  printf(\"{format}\\n\", {arguments});\n");
    let mut text = print(
        &format!("{} size %zu align %zu", head.trim_start_matches("typedef ")),
        &format!("sizeof({name}), _Alignof({name})"),
    );
    if head.contains(" struct ") {
        for field in body.split(';').map(str::trim).filter(|it| !it.is_empty()) {
            let member = field.split('[').next()?.split_whitespace().next_back()?;
            text += &print(
                &format!("  at %zu size %zu: {field}"),
                &format!("offsetof({name}, {member}), sizeof((({name}*)0)->{member})"),
            );
        }
    } else {
        for word in body
            .split(',')
            .filter_map(|it| it.split_whitespace().next())
        {
            text += &print(&format!("  {word} %d"), word);
        }
    }
    Some(text)
}

#[test]
fn the_interface_is_the_agreed_one() {
    let Some(exported) = kit::exported(&directory().join("libtowline.so.0")) else {
        return;
    };
    let statements = statements();
    let mut functions: Vec<&String> = statements
        .iter()
        .filter(|it| !it.starts_with("typedef") && it.ends_with(')'))
        .collect();
    let name = |declaration: &str| {
        let before = declaration.split('(').next().unwrap();
        before.rsplit([' ', '*']).next().unwrap().to_owned()
    };
    functions.sort_by_key(|declaration| name(declaration));
    let declared: Vec<String> = functions
        .iter()
        .map(|declaration| name(declaration))
        .collect();
    assert_eq!(
        exported, declared,
        "the library exports what the header declares"
    );
    let body: String = statements.iter().filter_map(|it| prints(it)).collect();
    let source = directory().join("abi.c");
    let head = "#include <stddef.h>\n#include <stdio.h>\n#include \"towline.h\"\n";
    fs::write(
        &source,
        format!("{head}int main(void) {{\n{body}  return 0;\n}}\n"),
    )
    .unwrap();
    let Some(program) = compiled(source.to_str().unwrap(), "abi", &[]) else {
        return;
    };
    let mut command = std::process::Command::new(program);
    command.env("LD_LIBRARY_PATH", directory());
    let others = statements
        .iter()
        .filter(|it| it.starts_with("typedef") && !it.contains('{'));
    let lines = functions.into_iter().chain(others);
    let mut abi: String = lines.map(|it| format!("{it}\n")).collect();
    abi += &finish(command);
    let path = Path::new(HERE).join("tests/abi.snap");
    if env::var_os("TOWLINE_ACCEPT_API").is_some() {
        fs::write(&path, &abi).unwrap();
    }
    let agreed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        abi, agreed,
        "a function or a number may be added (TOWLINE_ACCEPT_API=1, and a line in CHANGELOG.md); \
         none may be taken away or changed"
    );
}
