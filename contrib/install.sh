#!/bin/sh
# Installs the program with its manual pages, completions and systemd unit:
#
#   contrib/install.sh PROGRAM PREFIX [DESTDIR]     beneath DESTDIR/PREFIX, to be run in PREFIX
#   contrib/install.sh --remove PREFIX [DESTDIR]    all of it away again
#
# `make install` builds the program and calls this. The program prints pages and completions.
set -eu
umask 022

program=$1
prefix=$2
root=${3:-}$prefix
contrib=$(dirname "$0")

man1=$root/share/man/man1
bash=$root/share/bash-completion/completions/towline
zsh=$root/share/zsh/site-functions/_towline
fish=$root/share/fish/vendor_completions.d/towline.fish
unit=$root/lib/systemd/system/towline-recv.service
sample=$root/share/doc/towline/recv.toml

if [ "$program" = --remove ]; then
  rm -f "$root/bin/towline" "$man1/towline.1" "$man1"/towline-*.1 "$bash" "$zsh" "$fish" "$unit" \
    "$sample"
  rmdir "$root/share/doc/towline" 2>/dev/null || true
  echo "removed towline from $root"
  exit
fi

case $prefix in
  /*) ;;
  *) echo "install.sh: PREFIX is an absolute path, not $prefix" >&2; exit 2 ;;
esac
if [ ! -x "$program" ]; then
  echo "install.sh: there is no program $program: make build makes it" >&2
  exit 2
fi

mkdir -p "$root/bin" "$man1" "$(dirname "$bash")" "$(dirname "$zsh")" "$(dirname "$fish")" \
  "$(dirname "$unit")" "$(dirname "$sample")"
install -m 755 "$program" "$root/bin/towline"
"$program" man --quiet --to "$man1"
"$program" completions bash > "$bash"
"$program" completions zsh > "$zsh"
"$program" completions fish > "$fish"
sed "s|/usr/local/bin/towline|$prefix/bin/towline|" "$contrib/towline-recv.service" > "$unit"
install -m 644 "$contrib/recv.toml" "$sample"
echo "installed towline beneath $root; try: $prefix/bin/towline demo"
