//! Links the pure crates into WebAssembly modules, and reads what the modules ask of their host.
//!
//! A program for `wasm32-unknown-unknown` has no system to call: it must import every function that
//! its code does not define. So if a module keeps all functions of a crate, with all that they use,
//! and imports nothing, it makes no system call. This does not show what the standard library does
//! instead of a system call (`Instant::now` panics there); `xtask/clippy-pure.toml` forbids such
//! functions.
//!
//! ```text
//! module:  "\0asm"  version, 4 bytes  section ...
//! section: id, 1 byte  length  content            2 = imports, 10 = code
//! imports: count  ( length module  length name  kind, 1 byte  description ) ...
//! ```
//! Lengths and counts are LEB128: 7 bits a byte, the lowest first, the top bit set in all but the
//! last byte.
//!
//! **Spec**: WebAssembly Core Specification, section 5.5.

use std::fs;

use crate::command::{StepOutcome, cargo_step, root};

/// Links each of `packages`, whole, with what it uses of its dependencies; fails when a module
/// imports anything, or has no code.
pub(crate) fn link(packages: &[String]) -> StepOutcome {
    let target_dir = root().join("target/wasm32");
    let target = target_dir.to_string_lossy().into_owned();
    for package in packages {
        let build = ["rustc", "--locked", "--lib", "--crate-type", "cdylib"];
        let place = ["--target", TARGET, "--target-dir", &target, "-p", package];
        // Without these two a module keeps only what it exports, which is nothing.
        let keep_all = ["--", "-Clink-dead-code=yes", "-Clink-arg=--no-gc-sections"];
        // The target needs no C compiler, but BLAKE3's build script would look for one.
        let env = [("CARGO_FEATURE_PURE", "1")];
        let outcome = cargo_step(&[&build[..], &place, &keep_all].concat(), &env);
        if outcome != StepOutcome::Passed {
            return outcome;
        }
        let file = format!("{TARGET}/debug/{}.wasm", package.replace('-', "_"));
        let bytes = match fs::read(target_dir.join(&file)) {
            Ok(bytes) => bytes,
            Err(error) => return StepOutcome::Failed(format!("{file}: {error}")),
        };
        match Module::parse(&bytes) {
            Some(module) if module.imports.is_empty() && module.functions > 0 => {
                println!("{package}: {} functions, no import", module.functions);
            }
            Some(module) => return StepOutcome::Failed(format!("{file} has {module:?}")),
            None => return StepOutcome::Failed(format!("{file} is no whole module")),
        }
    }
    StepOutcome::of(!packages.is_empty(), "no crate is pure")
}

pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// What a module has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Module {
    /// What it needs from its host, each as `module.name`.
    imports: Vec<String>,
    /// Functions with code of its own.
    functions: u32,
}

impl Module {
    /// Reads the sections of a module; `None` when it is damaged or cut short.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(b"\0asm\x01\0\0\0")?;
        let mut module = Self::default();
        while let Some((&id, after)) = rest.split_first() {
            rest = after;
            let mut content = counted(&mut rest)?;
            match id {
                IMPORTS => module.imports = imports(&mut content)?,
                CODE => module.functions = leb128(&mut content)?,
                _ => {}
            }
        }
        Some(module)
    }
}

fn imports(content: &mut &[u8]) -> Option<Vec<String>> {
    let mut imports = Vec::new();
    for _ in 0..leb128(content)? {
        let mut name = || counted(content).map(String::from_utf8_lossy);
        imports.push(format!("{}.{}", name()?, name()?));
        let (&kind, rest) = content.split_first()?;
        *content = rest;
        skip_description(kind, content)?;
    }
    Some(imports)
}

/// Passes over what an import says beyond its names.
fn skip_description(kind: u8, content: &mut &[u8]) -> Option<()> {
    match kind {
        // A function: the number of its type.
        0 => {}
        // A table: the type of its elements, then limits as of a memory.
        1 => {
            *content = content.get(1..)?;
            return skip_description(2, content);
        }
        // A memory: whether it has a maximum, then its minimum, then the maximum.
        2 => {
            let (&flags, rest) = content.split_first()?;
            *content = rest;
            if flags & 1 != 0 {
                leb128(content)?;
            }
        }
        // A global: its type, and whether it can change.
        3 => {
            *content = content.get(2..)?;
            return Some(());
        }
        _ => return None,
    }
    leb128(content).map(|_| ())
}

/// Takes a length and as many bytes.
fn counted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(leb128(rest)?).ok()?;
    let (content, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(content)
}

fn leb128(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(value).ok();
        }
    }
    None
}

const IMPORTS: u8 = 2;
const CODE: u8 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// A module with a section that does not matter, imports of each kind, and two functions.
    fn module() -> Vec<u8> {
        let mut imports = vec![4];
        imports.extend(b"\x03env\x05clock\x00\x81\x01");
        imports.extend(b"\x03env\x05table\x01\x70\x00\x02");
        imports.extend(b"\x03env\x06memory\x02\x01\x01\x80\x02");
        imports.extend(b"\x03env\x05stack\x03\x7F\x01");
        let code = [2, 2, 0, 0x0B, 2, 0, 0x0B];
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        bytes.extend([0, 3, 2, b'n', b'o']);
        bytes.extend([IMPORTS, imports.len() as u8]);
        bytes.extend(&imports);
        bytes.extend([CODE, code.len() as u8]);
        bytes.extend(code);
        bytes
    }

    #[test]
    fn every_import_is_seen_and_functions_are_counted() {
        let module = Module::parse(&module()).unwrap();
        let expected = ["env.clock", "env.table", "env.memory", "env.stack"];
        assert_eq!(module.imports, expected);
        assert_eq!(module.functions, 2);
    }

    #[test]
    fn a_module_without_imports_has_none() {
        let whole = module();
        let imports_at = 13;
        let code_at = whole.len() - 9;
        let without = [&whole[..imports_at], &whole[code_at..]].concat();
        let module = Module::parse(&without).unwrap();
        assert!(module.imports.is_empty(), "{module:?}");
        assert_eq!(module.functions, 2);
    }

    #[test]
    fn a_module_that_is_cut_within_a_section_is_none() {
        let whole = module();
        let section_ends = [8, 13, whole.len() - 9];
        for len in 0..whole.len() {
            let module = Module::parse(&whole[..len]);
            assert_eq!(module.is_some(), section_ends.contains(&len), "{len}");
        }
        assert_eq!(Module::parse(b"\x7FELF\x01\0\0\0"), None);
    }
}
