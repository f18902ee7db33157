//! Names the shared library as programs that were linked against libpgm ask for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpgm-5.3.so.0");
}
