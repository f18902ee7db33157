//! The towline command.
fn main() {}
