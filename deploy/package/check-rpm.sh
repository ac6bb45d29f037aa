#!/usr/bin/env bash
# Installs, upgrades and removes an rpm in a root of its own, and looks at what it does. It is run
# by the user root. The root may be one of Debian, as rpm does not look for dependencies here:
#
#   debootstrap --variant=minbase bookworm /var/tmp/root
#   deploy/package/check-rpm.sh tidemark-VERSION-1.x86_64.rpm /var/tmp/root
set -euo pipefail

[ $# = 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
package=$1 root=$2
failed=0

inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"; }
rpm_inside() { rpm --root "$root" --nodeps --nosignature "$@"; }

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

# owners is what belongs to whom after an installation and after an upgrade.
owners() {
    wants "tidemark tidemark 750" inside stat -c '%U %G %a' /var/lib/tidemark
    wants "root tidemark 750" inside stat -c '%U %G %a' /etc/tidemark
    wants "root tidemark 640" inside stat -c '%U %G %a' /etc/tidemark/tidemark.env
}

echo "== install"
rpm_inside -i "$package"
inside tidemark version
wants "tidemark:/var/lib/tidemark:/usr/sbin/nologin" \
    inside sh -c 'getent passwd tidemark | cut -d: -f1,6,7'
owners
wants "no service is enabled" inside sh -c \
    'find /etc/systemd -name "tidemark*" 2>/dev/null | grep . || echo "no service is enabled"'
for file in man/man1/tidemark-start.1.gz bash-completion/completions/tidemark \
    zsh/site-functions/_tidemark fish/vendor_completions.d/tidemark.fish \
    licenses/tidemark/LICENSE; do
    wants "root root 644" inside stat -c '%U %G %a' "/usr/share/$file"
done

echo "== upgrade: what the administrator has set and what the server has written stay"
echo "# mine" >> "$root/etc/tidemark/tidemark.env"
inside setpriv --reuid tidemark --regid tidemark --clear-groups \
    sh -c 'echo data > /var/lib/tidemark/server.json'
rpm_inside -U --replacepkgs "$package"
wants "# mine" inside tail -n 1 /etc/tidemark/tidemark.env
wants "data" inside cat /var/lib/tidemark/server.json
owners

echo "== remove: the data stay"
rpm_inside -e tidemark
wants "server.json" inside ls /var/lib/tidemark
wants "# mine" inside tail -n 1 /etc/tidemark/tidemark.env.rpmsave
wants "gone" inside sh -c 'ls /usr/bin/tidemark >/dev/null 2>&1 || echo gone'
rm -rf "$root/var/lib/tidemark" "$root/etc/tidemark"
inside userdel tidemark
exit $failed
