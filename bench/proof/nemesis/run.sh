#!/bin/sh
# Runs the nemesis with what it needs of the machine: make nemesis. Arguments are the program's.
set -e
cd "$(dirname "$0")/../../.."
if [ "$(id -u)" = 0 ] && ! command -v ip >/dev/null && command -v apt-get >/dev/null; then
    # Network namespaces are set up with ip(8). Without it the links go through proxies.
    apt-get install -y iproute2 >/dev/null || echo "nemesis: iproute2 cannot be installed; without it there are no network namespaces" >&2
fi
${GO:-go} build -o bin/nemesis ./bench/proof/nemesis
exec bin/nemesis "$@"
