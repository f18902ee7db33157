#!/usr/bin/env bash
# Sets up what a make target needs: `setup.sh rust` the pinned toolchain, `setup.sh tests` the
# Debian packages of the tests, `setup.sh checks` the tools of `cargo xtask ci`, into target/checks,
# `setup.sh bench` the packages of the rivals. What cannot be had is named in a line that starts
# with "skipped:"; only a missing toolchain is an error. TOWLINE_NO_INSTALL=1 forbids installing
# anything.
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

# Installs what is missing of `command:package` pairs. `:package` is asked of dpkg, as it has no
# command; any one of `command|command` will do.
setup_packages() {
  local missing=() pair package
  for pair in "$@"; do
    package=${pair##*:}
    is_there "${pair%%:*}" "$package" || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return 0
  install_packages "${missing[@]}" && return 0
  # One package that is not to be had must not keep the others away.
  may_install && may_be_root && command -v apt-get >/dev/null || return 0
  for package in "${missing[@]}"; do install_packages "$package" || true; done
}

# is_there COMMANDS PACKAGE
is_there() {
  local name names
  if [ -z "$1" ]; then
    # Without dpkg nobody could install it either.
    command -v dpkg-query >/dev/null || return 0
    dpkg-query -W -f='${Status}' "$2" 2>/dev/null | grep -q 'ok installed'
    return
  fi
  IFS='|' read -ra names <<<"$1"
  for name in "${names[@]}"; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "$name" >/dev/null && return 0
  done
  return 1
}

# A line for each kind of test that would be skipped without it.
setup_tests() {
  setup_packages \
    tshark:tshark tcpdump:tcpdump :libpcap0.8 \
    gcc:gcc c++:g++ :libc6-dev pkg-config:pkg-config nm:binutils cmake:cmake make:make \
    :libpgm-dev :libglib2.0-dev :python3-zmq :libzmq5 \
    b3sum:b3sum diff:diffutils stdbuf:coreutils xz:xz-utils \
    ip:iproute2 ss:iproute2 tc:iproute2 nft:nftables ethtool:ethtool \
    setpriv:util-linux mount:mount script:bsdutils zsh:zsh fish:fish curl:curl \
    'chromium|chromium-browser|google-chrome:chromium'
  setup_openpgm
}

# The source of OpenPGM as Debian has it, into target/openpgm: tests build its examples. The
# system's lists need not name source packages, so apt gets lists of its own for this.
setup_openpgm() {
  local into=$PWD/target/openpgm wanted="the source of libpgm" apt log part file
  [ -d "$into" ] && return 0
  command -v apt-get >/dev/null || { say "skipped: no apt-get here; wanted: $wanted"; return 0; }
  may_install || { say "skipped: TOWLINE_NO_INSTALL is set; wanted: $wanted"; return 0; }
  apt=$(mktemp -d)
  mkdir -p target "$apt/sources" "$apt/lists/partial" "$apt/cache/archives/partial"
  # Two runs at a time must not take each other's part away; what fails leaves one log.
  part=$(mktemp -d "$into.XXXXXX")
  log=$into.log
  : >"$log"
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    case $file in
      *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" >"$apt/sources/${file##*/}" ;;
      *.list) sed -n 's/^deb /deb-src /p' "$file" >"$apt/sources/${file##*/}" ;;
    esac 2>>"$log" || true
  done
  say "fetching $wanted into target/openpgm"
  if (
    cd "$apt"
    set -- apt-get -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$apt/sources" \
      -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" \
      -o Acquire::Retries=0 -o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10
    # A list that this does not need may fail.
    "$@" update || true
    "$@" source --download-only --tar-only libpgm &&
      tar -xf libpgm_*.orig.tar.* -C "$part" --strip-components=2
  ) >>"$log" 2>&1; then
    chmod 755 "$part"
    # Another run may have been first.
    mv -T "$part" "$into" 2>>"$log" || true
    rm -f "$log"
  else
    say "skipped: could not fetch $wanted (see $log)"
  fi
  rm -rf "$apt" "$part"
}

# What checks spelling and dependencies (scripts/checks.txt), beneath target: each clone has the
# versions that it names, and nothing of the user's is replaced.
setup_checks() {
  local into=target/checks log
  cmp -s scripts/checks.txt "$into/checks.txt" && return 0
  may_install || { say "skipped: TOWLINE_NO_INSTALL is set; wanted: checks.txt"; return 0; }
  python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip || return 0
  log=$(mktemp)
  say "installing the tools of scripts/checks.txt into $into"
  rm -rf "$into"
  if python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
    --only-binary :all: --target "$into" --requirement scripts/checks.txt >"$log" 2>&1; then
    cp scripts/checks.txt "$into/"
    rm -f "$log"
  else
    say "skipped: could not install the tools of scripts/checks.txt (see $log)"
  fi
}

# The rivals that `make bench` measures; Aeron comes through Maven.
setup_bench() {
  setup_packages \
    gcc:gcc c++:g++ :libc6-dev pkg-config:pkg-config :libpgm-dev :libzmq3-dev :libnorm-dev \
    uftp:uftp udp-sender:udpcast sockperf:sockperf iperf3:iperf3 nuttcp:nuttcp \
    rsync:rsync nc:netcat-openbsd b3sum:b3sum \
    tcpdump:tcpdump dumpcap:wireshark-common capinfos:wireshark-common \
    netsniff-ng:netsniff-ng trafgen:netsniff-ng tracestats:libtrace-tools tcpreplay:tcpreplay \
    javac:default-jdk-headless mvn:maven
}

for part in "$@"; do
  case $part in
    rust) setup_rust ;;
    tests) setup_tests ;;
    checks) setup_checks ;;
    bench) setup_bench ;;
    *) say "usage: $0 [rust] [tests] [checks] [bench]"; exit 2 ;;
  esac
done
