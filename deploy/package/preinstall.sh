#!/bin/sh
# Before the files of an rpm are there: the user that they belong to. (A deb's files belong to root
# until postinstall.sh, because dpkg leaves folders that exist as they are; rpm does not.)
set -e

if ! getent group tidemark >/dev/null; then
    groupadd --system tidemark
fi
if ! getent passwd tidemark >/dev/null; then
    useradd --system --gid tidemark --home-dir /var/lib/tidemark --no-create-home \
        --shell /usr/sbin/nologin --comment "Tidemark server" tidemark
fi
