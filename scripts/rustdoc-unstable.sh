#!/bin/sh
# rustdoc of the pinned toolchain with what is unstable in it: see xtask/tests/api.rs.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
