#!/usr/bin/env bash
# Sets up what a make target needs: `setup.sh rust` the pinned toolchain, `setup.sh tests` the
# Debian packages of the tests. What cannot be had is named in a line that starts with "skipped:";
# only a missing toolchain is an error. TOWLINE_NO_INSTALL=1 forbids installing anything.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

pinned() { sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml; }

say() { printf '%s\n' "$*" >&2; }

may_install() { [ "${TOWLINE_NO_INSTALL:-0}" != 1 ]; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_be_root() {
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

install_packages() {
  command -v apt-get >/dev/null || { say "skipped: no apt-get here; wanted: $*"; return 1; }
  may_install || { say "skipped: TOWLINE_NO_INSTALL is set; wanted: $*"; return 1; }
  may_be_root || { say "skipped: only root may install; wanted: $*"; return 1; }
  local log
  log=$(mktemp)
  say "installing Debian packages: $*"
  if as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" \
    >"$log" 2>&1; then
    rm -f "$log"; return 0
  fi
  if as_root apt-get update >>"$log" 2>&1 &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" \
      >>"$log" 2>&1; then
    rm -f "$log"; return 0
  fi
  say "skipped: could not install $* (see $log)"
  return 1
}

setup_rust() {
  command -v cc >/dev/null || install_packages gcc libc6-dev || true
  local want have
  want=$(pinned)
  if command -v rustup >/dev/null; then
    rustup run "$want" cargo --version >/dev/null 2>&1 && return 0
    may_install && rustup toolchain install "$want" --profile minimal -c rustfmt -c clippy >&2 &&
      return 0
    say "error: rustup could not install toolchain $want"
    return 1
  fi
  if command -v cargo >/dev/null; then
    have=$(cargo --version | awk '{print $2}')
    [ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n 1)" = "$want" ] && return 0
    say "cargo $have is older than the pinned $want"
  fi
  if may_install && command -v curl >/dev/null; then
    say "installing Rust $want through rustup into $HOME/.cargo"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
      sh -s -- -y --quiet --no-modify-path --profile minimal --default-toolchain "$want" \
        -c rustfmt -c clippy >&2 && return 0
  fi
  say "error: Rust $want is needed; install it from https://rustup.rs and run this again"
  return 1
}

# command:package pairs; a package without a command of its own is asked of dpkg.
setup_tests() {
  local missing=() pair
  for pair in tshark:tshark b3sum:b3sum nft:nftables ip:iproute2 gcc:gcc ethtool:ethtool; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
  done
  if command -v dpkg-query >/dev/null; then
    dpkg-query -W -f='${Status}' libpgm-dev 2>/dev/null | grep -q 'ok installed' ||
      missing+=(libpgm-dev)
  fi
  [ ${#missing[@]} = 0 ] && return 0
  install_packages "${missing[@]}" && return 0
  # One package that is not to be had must not keep the others away.
  may_install && may_be_root && command -v apt-get >/dev/null || return 0
  for pair in "${missing[@]}"; do install_packages "$pair" || true; done
}

for part in "$@"; do
  case $part in
    rust) setup_rust ;;
    tests) setup_tests ;;
    *) say "usage: $0 [rust] [tests]"; exit 2 ;;
  esac
done
