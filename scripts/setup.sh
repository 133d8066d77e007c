#!/usr/bin/env bash
# Makes this checkout usable on a bare Debian 12: system packages, uv, the locked environment.
#
# Usage: scripts/setup.sh run|dev
# Every step looks first and does nothing when it is already done, so a second run costs milliseconds
# and a run that was interrupted anywhere can simply be repeated.
set -euo pipefail
cd "$(dirname "$0")/.."

flavour="${1:-run}"
case "$flavour" in run | dev) ;; *) echo "setup: cannot set up '$flavour': say run or dev" >&2; exit 2 ;; esac

say() { echo "setup: $*" >&2; }

# command or file that the package provides : Debian package
wanted="dockerd:docker.io iptables:iptables nft:nftables ip:iproute2 /bin/busybox:busybox-static"
[ "$flavour" = dev ] && wanted="$wanted mmdebstrap:mmdebstrap docker-registry:docker-registry dbus-daemon:dbus unshare:util-linux etcd:etcd-server promtool:prometheus qemu-system-x86_64:qemu-system-x86 faketime:faketime"

# The program that names dead cgroups is compiled here. Where nothing can be installed the rest works without it.
compiler="clang:clang /usr/include/bpf/libbpf.h:libbpf-dev"
if [ "$flavour" = dev ] || { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }; then wanted="$wanted $compiler"; fi

missing=""
for pair in $wanted; do
  [ -e "${pair%%:*}" ] || command -v "${pair%%:*}" >/dev/null 2>&1 || PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done

python=""
for candidate in python3 /usr/bin/python3 python3.13 python3.12 python3.11; do
  if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python="$candidate"; break
  fi
done
[ -n "$python" ] || missing="$missing python3"
# ensurepip and venv are separate packages on Debian; a python built by hand carries them.
if [ -z "$python" ] || ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then missing="$missing python3-venv"; fi

if [ -n "$missing" ]; then
  if [ "$(id -u)" != 0 ]; then
    say "cannot install$missing: this needs root. Run it as root, or run: apt-get install$missing"; exit 1
  fi
  if ! command -v apt-get >/dev/null 2>&1; then
    say "cannot install$missing: apt-get is not here. Install them with this system's own tool and repeat."; exit 1
  fi
  say "installing$missing"
  log="$(mktemp)"
  # shellcheck disable=SC2086 # the list is meant to be split
  if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2; say "cannot install$missing: apt-get failed, see above; the whole log is $log"; exit 1
  fi
  rm -f "$log"
  [ -n "$python" ] || python=python3
fi

if command -v clang >/dev/null 2>&1; then
  if [ "$flavour" = dev ]; then scripts/build_bpf.sh --must; else scripts/build_bpf.sh; fi
fi

# uv comes from its own hashed lock, in an environment of its own, so it never mixes with the project's.
uv=.tools/uv/bin/uv
uv_stamp=.tools/uv.stamp
if [ ! -x "$uv" ] || ! cmp -s requirements/uv.txt "$uv_stamp"; then
  say "installing uv"
  rm -rf .tools/uv && mkdir -p .tools
  "$python" -m venv .tools/uv
  .tools/uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
  cp requirements/uv.txt "$uv_stamp"
fi

# The stamp names everything the environment was made from; an environment for developers serves running too.
stamp_of() { cat "requirements/$1.txt" pyproject.toml | sha256sum | cut -d' ' -f1; }
have="$(cat .venv/.stamp 2>/dev/null || true)"
if [ "$have" = "dev $(stamp_of dev)" ] || { [ "$flavour" = run ] && [ "$have" = "run $(stamp_of run)" ]; }; then
  exit 0
fi
# A developer's environment stays one: running must not take the tests' tools away.
case "$have" in dev*) flavour=dev ;; esac
say "making the environment from requirements/$flavour.txt"
[ -x .venv/bin/python ] || "$uv" venv --quiet --python "$python" .venv
"$uv" pip sync --quiet --python .venv/bin/python --require-hashes "requirements/$flavour.txt"
# A path file and a two-line command are all an editable install is; no build tool is needed for them.
site="$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')"
echo "$PWD/src" >"$site/sexton.pth"
printf '#!%s\nimport sys\nfrom sexton.__main__ import main\nsys.exit(main())\n' "$PWD/.venv/bin/python" >.venv/bin/sexton
chmod +x .venv/bin/sexton
.venv/bin/python -m compileall -q src
echo "$flavour $(stamp_of "$flavour")" >.venv/.stamp
