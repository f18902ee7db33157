#!/bin/sh
# Installs the shared libraries for programs in C:
#
#   contrib/install-libraries.sh BUILT PREFIX [DESTDIR]     from the directory BUILT
#   contrib/install-libraries.sh --remove PREFIX [DESTDIR]  all of them away again
#
# The stand-in for libpgm gets a directory of its own: it is found only by a program that is started
# with LD_LIBRARY_PATH=PREFIX/lib/towline.
set -eu
umask 022

built=$1
prefix=$2
root=${3:-}$prefix
crate=$(dirname "$0")/../crates/capi

if [ "$built" = --remove ]; then
  rm -f "$root/lib/libtowline.so" "$root/lib/libtowline.so.0" "$root/include/towline.h" \
    "$root/lib/pkgconfig/towline.pc" "$root/lib/cmake/towline/towline-config.cmake" \
    "$root/lib/cmake/towline/towline-config-version.cmake" "$root/lib/towline/libpgm-5.3.so.0"
  rmdir "$root/lib/towline" "$root/lib/cmake/towline" 2>/dev/null || true
  echo "removed the libraries for C from $root"
  exit
fi

case $prefix in
  /*) ;;
  *) echo "install-libraries.sh: PREFIX is an absolute path, not $prefix" >&2; exit 2 ;;
esac
for library in libtowline_capi.so libtowline_libpgm.so; do
  if [ ! -f "$built/$library" ]; then
    echo "install-libraries.sh: there is no $built/$library: make install-libraries makes it" >&2
    exit 2
  fi
done

version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$crate/../../Cargo.toml" | head -n 1)
mkdir -p "$root/lib/towline" "$root/lib/pkgconfig" "$root/lib/cmake/towline" "$root/include"
install -m 755 "$built/libtowline_capi.so" "$root/lib/libtowline.so.0"
ln -sf libtowline.so.0 "$root/lib/libtowline.so"
install -m 644 "$crate/include/towline.h" "$root/include/towline.h"
fill() {
  sed "s|@PREFIX@|$prefix|; s|@VERSION@|$version|" "$crate/$1.in" > "$root/lib/$2/$1"
}
fill towline.pc pkgconfig
fill towline-config.cmake cmake/towline
fill towline-config-version.cmake cmake/towline
install -m 755 "$built/libtowline_libpgm.so" "$root/lib/towline/libpgm-5.3.so.0"
echo "installed libtowline beneath $root, and the stand-in for libpgm in $root/lib/towline"
