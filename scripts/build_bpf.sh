#!/usr/bin/env bash
# Compiles the walk over memory cgroups (src/sexton/host/bpf) into one static program, built/memcg-walk.
#
# Usage: scripts/build_bpf.sh [--must]
# Does nothing, in milliseconds, when the program is there and its sources have not changed. Where it cannot be built it
# says why and ends well, since all else works without it: zombies are then located by arithmetic, not named. With
# --must that is a failure. The program fits every kernel: field offsets are looked up where it runs, not here.
set -euo pipefail
cd "$(dirname "$0")/../src/sexton/host/bpf"

say() { echo "build_bpf: $*" >&2; }
cannot() { say "cannot build the walk over memory cgroups: $*"; exit "$failure"; }
case "${1:-}" in --must) failure=1 ;; "") failure=0 ;; *) say "say --must or nothing, not '$1'"; exit 2 ;; esac

sources="walk.bpf.c memcg_walk.c kernel.h record.h packing.h"
# shellcheck disable=SC2086 # the list is meant to be split
stamp="$(cat $sources "../../../../scripts/build_bpf.sh" | sha256sum | cut -d' ' -f1) $(uname -m)"
if [ -x built/memcg-walk ] && [ "$(cat built/stamp 2>/dev/null || true)" = "$stamp" ]; then exit 0; fi

command -v clang >/dev/null 2>&1 || cannot "clang is not here (apt-get install clang libbpf-dev)"
for header in bpf/libbpf.h libelf.h zlib.h; do
  [ -e "/usr/include/$header" ] || cannot "/usr/include/$header is not here (apt-get install libbpf-dev)"
done

# Everything is made aside and moved into place whole, so that neither a broken build nor two at once leave half a program.
mkdir -p built
work="$(mktemp -d built/.making.XXXXXX)"
trap 'rm -rf "$work"' EXIT
log="$work/log"
compile() {
  # The kernel's public headers are below a directory of the host's architecture, where a compiler for BPF does not look.
  clang -O2 -g -Wall -Wextra -Werror -target bpf -idirafter "/usr/include/$(uname -m)-linux-gnu" "-DPINS=$1" -c walk.bpf.c -o "$work/$2.bpf.o"
}
if ! { compile 0 groups && compile 1 pins &&
    clang -O2 -Wall -Wextra -Werror -static -Wa,-I"$work" -I. memcg_walk.c -o "$work/memcg-walk" -lbpf -lelf -lz; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  cannot "the compiler failed, see above"
fi
mv "$work/memcg-walk" built/memcg-walk
echo "$stamp" >built/stamp
say "built src/sexton/host/bpf/built/memcg-walk"
