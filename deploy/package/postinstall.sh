#!/bin/sh
# After the files of the package are there: the user of the server, and what belongs to it. Starts
# and restarts nothing: servers of a cluster are upgraded one after the other, by an operator.
set -e

earlier= # set by an upgrade
case "$1" in
configure) earlier=$2 ;;        # dpkg: $2 is the version before
1) ;;                           # rpm: the number of installed versions
[2-9]*) earlier=yes ;;
*) exit 0 ;;
esac

if [ "$1" = configure ]; then
    # An rpm has the user from preinstall.sh, and the owners in the package.
    if ! getent group tidemark >/dev/null; then
        groupadd --system tidemark
    fi
    if ! getent passwd tidemark >/dev/null; then
        useradd --system --gid tidemark --home-dir /var/lib/tidemark --no-create-home \
            --shell /usr/sbin/nologin --comment "Tidemark server" tidemark
    fi
    chown tidemark:tidemark /var/lib/tidemark
    chmod 0750 /var/lib/tidemark
    if [ -z "$earlier" ]; then # the first time: later it is as the administrator has set it
        chgrp tidemark /etc/tidemark /etc/tidemark/tidemark.env
    fi
fi

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
if [ -z "$earlier" ]; then
    echo "tidemark: set up /etc/tidemark/tidemark.env, then: systemctl enable --now tidemark"
elif [ -d /run/systemd/system ] && systemctl --quiet is-active tidemark.service; then
    echo "tidemark: the server runs the earlier version until: systemctl restart tidemark"
fi
