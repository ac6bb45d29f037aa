#!/bin/sh
# After the files of the package are there: the user of the server, and what belongs to it. Starts
# and restarts nothing: servers of a cluster are upgraded one after the other, by an operator.
set -e

[ "$1" = configure ] || exit 0

if ! getent group tidemark >/dev/null; then
    groupadd --system tidemark
fi
if ! getent passwd tidemark >/dev/null; then
    useradd --system --gid tidemark --home-dir /var/lib/tidemark --no-create-home \
        --shell /usr/sbin/nologin --comment "Tidemark server" tidemark
fi
chown tidemark:tidemark /var/lib/tidemark
chmod 0750 /var/lib/tidemark
if [ -z "$2" ]; then # the first time: later it is as the administrator has set it
    chgrp tidemark /etc/tidemark /etc/tidemark/tidemark.env
fi

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
if [ -z "$2" ]; then
    echo "tidemark: set up /etc/tidemark/tidemark.env, then: systemctl enable --now tidemark"
elif [ -d /run/systemd/system ] && systemctl --quiet is-active tidemark.service; then
    echo "tidemark: the server runs the earlier version until: systemctl restart tidemark"
fi
