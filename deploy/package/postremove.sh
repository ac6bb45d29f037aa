#!/bin/sh
# After the package is removed. The data stay, and so does the user that they belong to, also after
# a purge.
set -e

case "$1" in
remove)
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload || true
    fi
    ;;
purge)
    if [ -d /var/lib/tidemark ]; then
        echo "tidemark: the data are left in /var/lib/tidemark"
    fi
    ;;
esac
