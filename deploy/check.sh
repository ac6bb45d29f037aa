#!/usr/bin/env bash
# Checks what is in this folder with the tools that are there, and says what it has left out:
#
#   shells             the syntax of the scripts; shellcheck
#   systemd-analyze    the unit, and how exposed the service is
#   strace             that a server makes no system call that the unit forbids
#   go                 the Compose file and what it mounts
#   promtool           the configuration of Prometheus
set -euo pipefail
cd "$(dirname "$0")/.."

GO=${GO:-go}
binary=$PWD/bin/tidemark
# What `systemd-analyze security` may say at most, in tenths: versions of systemd differ a little.
most=20

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
failed=0

step() { echo "==> $1"; }
left_out() { echo "left out: there is no $1"; }
wrong() { echo "NOT OK: $*"; failed=1; }
has() { command -v "$1" >/dev/null; }

step "scripts"
while read -r script; do
    case $(head -n 1 "$script") in
    *bash*) bash -n "$script" || wrong "$script" ;;
    *) sh -n "$script" || wrong "$script" ;;
    esac
    if has shellcheck; then
        shellcheck "$script" || wrong "$script"
    fi
done < <(find deploy -name '*.sh')
has shellcheck || left_out shellcheck

step "the unit"
if has systemd-analyze; then
    # The program need not be installed for that.
    sed "s|/usr/bin/tidemark|/bin/true|" deploy/systemd/tidemark.service > "$work/tidemark.service"
    systemd-analyze verify --man=no "$work/tidemark.service" || wrong "the unit"
    if systemd-analyze security --help | grep -q -- --offline; then
        if systemd-analyze security --no-pager --offline=true --threshold=$most \
            "$work/tidemark.service" > "$work/security"; then
            tail -n 1 "$work/security"
        else
            cat "$work/security"
            wrong "the service is more exposed than it was"
        fi
    else
        left_out "systemd-analyze with --offline"
    fi
else
    left_out systemd-analyze
fi

# allowed lists the system calls of the unit's SystemCallFilter= lines, which are given from the
# first to the last. The sets are systemd's.
allowed() {
    systemd-analyze syscall-filter --no-pager 2>/dev/null | awk -v filters="$1" '
        /^@/ { set = $1; next }
        $1 != "" && $1 !~ /^#/ { members[set] = members[set] " " $1 }
        function change(name, to,   i, n, parts) {
            if (name ~ /^@/) {
                n = split(members[name], parts, " ")
                for (i = 1; i <= n; i++) change(parts[i], to)
            } else may[name] = to
        }
        END {
            n = split(filters, lines, "\n")
            for (l = 1; l <= n; l++) {
                to = lines[l] !~ /^~/
                sub(/^~/, "", lines[l])
                m = split(lines[l], names, " ")
                for (k = 1; k <= m; k++) change(names[k], to)
            }
            for (name in may) if (may[name]) print name
        }' | sort -u
}

step "system calls of a server"
if has strace && has systemd-analyze && [ -x "$binary" ]; then
    allowed "$(sed -n 's/^SystemCallFilter=//p' deploy/systemd/tidemark.service)" > "$work/allowed"
    export TIDEMARK_ENDPOINTS=127.0.0.1:27411
    strace -f -c -o "$work/calls" "$binary" start --dir "$work/data" --listen $TIDEMARK_ENDPOINTS \
        --core $TIDEMARK_ENDPOINTS --http 127.0.0.1:27481 --kernel-clock-bound &
    server=$!
    "$binary" status --wait --timeout 60s >/dev/null
    "$binary" keyspace create fruit --partitions hash:2 --replicas 1 --commit-wait >/dev/null
    seq 2000 | sed 's/.*/&\t&/' | "$binary" load fruit --output raw >/dev/null
    "$binary" count fruit >/dev/null
    "$binary" keyspace drop fruit --yes >/dev/null 2>&1
    # strace passes no signals on: they go to the server itself.
    kill -HUP "$(pgrep -P $server)"
    "$binary" health --http 127.0.0.1:27481 >/dev/null
    kill -TERM "$(pgrep -P $server)"
    wait $server || wrong "the server has ended with an error"
    server=
    awk '/^ *[0-9.]+ +[0-9.]+ / && $NF != "total" { print $NF }' "$work/calls" | sort -u \
        > "$work/made"
    if forbidden=$(comm -23 "$work/made" "$work/allowed" | grep -v '^execve$'); then
        wrong "the unit forbids: $forbidden"
    fi
    echo "$(wc -l < "$work/made") system calls, of $(wc -l < "$work/allowed") that may be made"
else
    left_out "strace, systemd-analyze or bin/tidemark (make build)"
fi

step "the Compose file"
(cd deploy/compose/check && $GO test -count 1 ./...) || wrong "the Compose file"

step "the configuration of Prometheus"
if has promtool; then
    # The rules are where the container has them; here they are looked at by themselves.
    promtool check config --syntax-only deploy/compose/prometheus.yml || wrong "prometheus.yml"
    promtool check rules deploy/monitoring/rules/tidemark.rules.yaml || wrong "the rules"
else
    left_out promtool
fi
exit $failed
