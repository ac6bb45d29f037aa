#!/usr/bin/env bash
# Tests the console in a browser: run.sh PROGRAM [--shots DIRECTORY] [--partitions N].
# Needs Node, npm, and Chromium, which is installed with apt-get if it is not there.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v chromium >/dev/null; then
    apt-get update -qq
    apt-get install -y -qq chromium >/dev/null
fi
npm ci --no-audit --no-fund --silent
CHROMIUM=$(command -v chromium) exec node check.mjs "$@"
