#!/bin/sh
# Runs the nemesis with what it needs of the machine: make nemesis. Arguments are the program's.
set -e
cd "$(dirname "$0")/../../.."
if [ "$(id -u)" = 0 ] && ! command -v ip >/dev/null && command -v apt-get >/dev/null; then
    # Network namespaces are set up with ip(8). Without it the links go through proxies.
    apt-get install -y iproute2 >/dev/null ||
        echo "nemesis: without iproute2, which cannot be installed, there are no namespaces" >&2
fi
${GO:-go} build -o bin/nemesis ./bench/proof/nemesis
exec bin/nemesis "$@"
