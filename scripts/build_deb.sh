#!/usr/bin/env bash
# Builds dist/sexton_VERSION_ARCH.deb from this checkout: the program with its own copies of its libraries below
# /usr/lib/sexton, for the python3 of this Debian release, a unit file, and defaults.
#
# Usage: scripts/build_deb.sh [DIRECTORY]      (after scripts/setup.sh run; SEXTON_DEB_VERSION overrides the version)
# Nothing on this machine but the directory and a temporary one is touched; no root is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-dist}"
say() { echo "build_deb: $*" >&2; }

python="${SEXTON_DEB_PYTHON:-/usr/bin/python3}"
[ -x "$python" ] || { say "cannot build: $python is not here; install python3"; exit 1; }
command -v dpkg-deb >/dev/null || { say "cannot build: dpkg-deb is not here; this needs a Debian system"; exit 1; }
release="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
following="$("$python" -c 'import sys; print("%d.%d" % (sys.version_info[0], sys.version_info[1] + 1))')"
arch="$(dpkg --print-architecture)"
version="${SEXTON_DEB_VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml | head -n 1)}"
uv=.tools/uv/bin/uv
[ -x "$uv" ] || { say "cannot build: run scripts/setup.sh run first"; exit 1; }

stage="$(mktemp -d)"
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
home="$stage/usr/lib/sexton"
site="$home/lib/python$release/site-packages"
install -d "$site" "$home/bin" "$stage/usr/bin" "$stage/usr/share/doc/sexton" "$stage/etc/ecs" \
  "$stage/lib/systemd/system" "$stage/DEBIAN"

# A virtual environment is a link to an interpreter, a file that says so, and the libraries; none of it names a build path.
ln -s "/usr/bin/python$release" "$home/bin/python"
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$release" >"$home/pyvenv.cfg"
"$uv" pip install --quiet --python "$python" --target "$site" --only-binary :all: --no-deps --require-hashes \
  -r requirements/run.txt
rm -rf "$site/bin" "$site/.lock"
cp -R src/sexton "$site/sexton"
find "$site" -name __pycache__ -type d -prune -exec rm -rf {} +
# Compiled here, so that nothing is written there: code that is never changed need not be checked for changes.
"$python" -m compileall -q -s "$stage" -p / --invalidation-mode unchecked-hash "$site"

install -m 755 packaging/sexton "$stage/usr/bin/sexton"
install -m 644 packaging/ecs.config "$home/ecs.config"
install -m 644 packaging/sexton-agent.service packaging/sexton-care.service "$stage/lib/systemd/system/"
install -m 644 packaging/copyright "$stage/usr/share/doc/sexton/copyright"
install -m 644 docs/moving.md docs/settings.md docs/troubleshooting.md docs/care.md docs/findings.md docs/doctor.md \
  docs/zombies.md "$stage/usr/share/doc/sexton/"
install -d "$stage/usr/share/doc/sexton/examples"
cp -R packaging/prometheus packaging/grafana packaging/node-problem-detector "$stage/usr/share/doc/sexton/examples/"
for script in postinst prerm postrm; do install -m 755 "packaging/$script" "$stage/DEBIAN/$script"; done
cat >"$stage/DEBIAN/control" <<END
Package: sexton
Version: $version
Architecture: $arch
Maintainer: the authors of Sexton <sexton@localhost>
Section: admin
Priority: optional
Depends: python3 (>= $release), python3 (<< $following), python$release, libc6
Recommends: docker.io | docker-ce, iptables, nftables
Installed-Size: $(du -sk "$stage/usr" | cut -f1)
Description: container agent, control plane and host caretaker for Amazon ECS
 Joins this host to a cluster of Amazon ECS, or to a control plane of its own,
 runs the cluster's containers, and keeps the host fit to run them. Takes the
 place of Amazon's agent: its /etc/ecs/ecs.config works as it is.
END
mkdir -p "$out"
file="$out/sexton_${version}_$arch.deb"
dpkg-deb --root-owner-group -Zxz -z1 --build "$stage" "$file" >/dev/null
say "built $file"
