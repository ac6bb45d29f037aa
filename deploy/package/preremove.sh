#!/bin/sh
# Before the package is removed, and not before an upgrade: stops the server. dpkg says "remove", and
# rpm how many versions will be left.
set -e

case "$1" in
remove | 0)
    if [ -d /run/systemd/system ]; then
        systemctl --no-reload disable --now tidemark.service || true
    fi
    ;;
esac
