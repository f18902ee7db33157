//! `towline.h`, the header of libtowline, from the Rust code of `crates/capi`: cbindgen reads each
//! function's arguments, each type and their comments, so that C is told what Rust does.
//!
//! In: `towline.h.in`, which has what no Rust item says, and the modules that it names as
//! `@session@`. Out: `include/towline.h`. `cargo xtask header` writes it, and the test at the end
//! of this file fails when it is stale.

use std::{fs, path::Path};

use cbindgen::{Builder, Config};

/// Writes the header; true when that worked.
pub(crate) fn run() -> bool {
    let root = crate::command::root();
    let written = header(&root).and_then(|text| {
        fs::write(root.join(HEADER), text).map_err(|error| format!("{HEADER}: {error}"))
    });
    match written {
        Ok(()) => println!("{HEADER} written"),
        Err(ref text) => eprintln!("{text}"),
    }
    written.is_ok()
}

/// Returns the header as the code has it.
fn header(root: &Path) -> Result<String, String> {
    let place = root.join("crates/capi");
    let config = Config::from_file(place.join("cbindgen.toml"))?;
    let template = fs::read_to_string(place.join("towline.h.in"))
        .map_err(|error| format!("towline.h.in: {error}"))?;
    let mut header = String::new();
    for line in template.lines() {
        match line.strip_prefix('@').and_then(|it| it.strip_suffix('@')) {
            Some(module) => header += &section(&config, &place.join(format!("src/{module}.rs")))?,
            None => header += line,
        }
        header.push('\n');
    }
    Ok(header)
}

/// Returns what a module declares for C.
///
/// cbindgen puts all types before all functions, so that each module is a run of its own.
fn section(config: &Config, module: &Path) -> Result<String, String> {
    let builder = Builder::new().with_config(config.clone()).with_src(module);
    let bindings = builder.generate();
    let bindings = bindings.map_err(|error| format!("{}: {error}", module.display()))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).map_err(|error| error.to_string())?;
    let lines: Vec<String> = text.trim().lines().map(in_our_style).collect();
    let text = lines.join("\n");
    // The ends of a comment have no lines of their own. Before C99, no comma ends an enumeration.
    let text = text.replace("/**\n * ", "/** ").replace("\n */", " */");
    let text = text.replace("/**\n   * ", "/** ").replace("\n   */", " */");
    Ok(text.replace(",\n} ", "\n} "))
}

/// Returns a line of C as this project writes it, which cbindgen cannot be told: stars beside
/// types, types by their names alone, and enumerators with no prefix but the library's.
fn in_our_style(line: &str) -> String {
    if line.trim_start().starts_with(['*', '/']) {
        return line.to_owned();
    }
    let mut line = line.replace(" **", "** ").replace(" *", "* ");
    if !line.starts_with("typedef") {
        for tag in ["struct", "enum"] {
            line = line.replace(&format!("{tag} towline_"), "towline_");
        }
    }
    let line = line.replace("TOWLINE_RESULT_", "TOWLINE_");
    line.replace("TOWLINE_KIND_", "TOWLINE_")
}

const HEADER: &str = "crates/capi/include/towline.h";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_what_the_code_says() {
        let root = crate::command::root();
        let made = header(&root).unwrap();
        assert!(
            fs::read_to_string(root.join(HEADER)).unwrap() == made,
            "{HEADER} is stale: run `cargo xtask header`"
        );
    }
}
