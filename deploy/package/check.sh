#!/usr/bin/env bash
# Installs, upgrades, removes and purges a package in a root of its own, and looks at what it does.
# It is run by root:
#
#   debootstrap --variant=minbase --include=man-db bookworm /var/tmp/root
#   deploy/package/check.sh bin/tidemark_VERSION_amd64.deb /var/tmp/root
set -euo pipefail

[ $# = 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
package=$1 root=$2
failed=0

inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"; }

# wants TEXT COMMAND...: the command prints exactly that.
wants() {
    local want=$1 got
    shift
    got=$("$@" 2>&1) || true
    if [ "$got" = "$want" ]; then
        echo "ok: $*: $got"
    else
        echo "NOT OK: $*: printed '$got', not '$want'"
        failed=1
    fi
}

# Documentation is often left out of minimal roots.
rm -f "$root/etc/dpkg/dpkg.cfg.d/docker" "$root/etc/dpkg/dpkg.cfg.d/excludes"
version=$(dpkg-deb -f "$package" Version)
cp "$package" "$root/tmp/tidemark.deb"

echo "== install"
inside dpkg -i /tmp/tidemark.deb
# shellcheck disable=SC2016 # that is dpkg's own variable
wants "ii  $version" inside dpkg-query -W -f '${db:Status-Abbrev} ${Version}' tidemark
inside tidemark version
wants "tidemark:/var/lib/tidemark:/usr/sbin/nologin" \
    inside sh -c 'getent passwd tidemark | cut -d: -f1,6,7'
wants "tidemark tidemark 750" inside stat -c '%U %G %a' /var/lib/tidemark
wants "root tidemark 750" inside stat -c '%U %G %a' /etc/tidemark
wants "root tidemark 640" inside stat -c '%U %G %a' /etc/tidemark/tidemark.env
wants "/etc/tidemark/tidemark.env" inside sh -c 'cat /var/lib/dpkg/info/tidemark.conffiles'
wants "no service is enabled" inside sh -c \
    'find /etc/systemd -name "tidemark*" 2>/dev/null | grep . || echo "no service is enabled"'
for page in tidemark tidemark-start tidemark-keyspace-create; do
    wants "/usr/share/man/man1/$page.1.gz" inside man -w "$page"
done
wants "0" inside sh -c "man tidemark-start | grep -c 'No manual entry'"
wants "tidemark-health (1)  - Ask one server whether it is ready, or alive" \
    inside sh -c 'mandb -q; whatis tidemark-health'
for file in bash-completion/completions/tidemark zsh/vendor-completions/_tidemark \
    fish/vendor_completions.d/tidemark.fish; do
    wants "root root 644" inside stat -c '%U %G %a' "/usr/share/$file"
done

echo "== a server with the example configuration, as the unit starts it"
# Not by inside, which would be a process between this one and the server.
chroot "$root" /usr/bin/setpriv --reuid tidemark --regid tidemark --clear-groups --no-new-privs \
    /usr/bin/tidemark start --dir=/var/lib/tidemark --listen=127.0.0.1:27400 \
    --core=127.0.0.1:27400 --http=127.0.0.1:27480 &
server=$!
trap 'kill -9 $server 2>/dev/null || true' EXIT
inside tidemark status --wait --timeout 60s --endpoints 127.0.0.1:27400
inside tidemark health --http 127.0.0.1:27480
kill -TERM $server
ended=0
wait $server || ended=$?
trap - EXIT
wants "0" echo $ended

echo "== upgrade: what the administrator has set stays"
echo "# mine" >> "$root/etc/tidemark/tidemark.env"
inside chgrp root /etc/tidemark/tidemark.env
inside dpkg -i /tmp/tidemark.deb
wants "# mine" inside tail -n 1 /etc/tidemark/tidemark.env
wants "root root 640" inside stat -c '%U %G %a' /etc/tidemark/tidemark.env

echo "== remove, and purge: the data stay"
inside dpkg -r tidemark
wants "/etc/tidemark/tidemark.env" inside ls /etc/tidemark/tidemark.env
inside dpkg -P tidemark
wants "server.json" inside sh -c 'cd /var/lib/tidemark && ls server.json'
wants "gone" inside sh -c 'ls /usr/bin/tidemark /etc/tidemark >/dev/null 2>&1 || echo gone'
rm -rf "$root/var/lib/tidemark" "$root/tmp/tidemark.deb"
inside userdel tidemark
exit $failed
