#!/usr/bin/env bash
# Renews the hashed locks. They name packages and hashes only, never where a package is fetched from.
# A release must be a week old before it is taken, so that a bad one is usually found by others first.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() { .tools/uv/bin/uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --exclude-newer "7 days" "$@"; }
compile pyproject.toml -o requirements/run.txt
compile --group dev pyproject.toml -c requirements/run.txt -o requirements/dev.txt
compile requirements/uv.in -o requirements/uv.txt
