#!/bin/sh
# After the package is removed. The data stay, and so does the user that they belong to, also after
# a purge. dpkg says "remove" or "purge", and rpm how many versions are left.
set -e

case "$1" in
remove | 0)
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload || true
    fi
    ;;
esac
case "$1" in
purge | 0)
    if [ -d /var/lib/tidemark ]; then
        echo "tidemark: the data are left in /var/lib/tidemark"
    fi
    ;;
esac
