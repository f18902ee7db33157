//! Gives the shared library the name that programs linked against libpgm ask for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpgm-5.3.so.0");
}
