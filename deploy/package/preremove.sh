#!/bin/sh
# Before the package is removed, and not before an upgrade: stops the server.
set -e

if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now tidemark.service || true
fi
