#!/bin/sh
# Makes what is not there yet: the authorities, and the certificates of the servers and of a client,
# each in a volume that only its owner mounts. With the argument renew it makes all certificates
# anew; servers and clients notice that by themselves.
set -eu

tidemark=${TIDEMARK:-/rootfs/usr/bin/tidemark}
authorities=${AUTHORITIES:-/authorities}
tls=${TLS:-/tls}
owner=65532:65532 # the user that servers and clients run as
again=${1:-}

# put FILE MODE TARGET: in one step, so that no process reads half a file.
put() {
    cp "$1" "$3.new"
    chown "$owner" "$3.new"
    chmod "$2" "$3.new"
    mv "$3.new" "$3"
}

# certificate KIND NAME FOLDER FILE HOST...: one certificate with its key.
certificate() {
    kind=$1 name=$2 to=$tls/$3 file=$4
    shift 4
    chmod 0755 "$to"
    put "$authorities/server-ca.crt" 0444 "$to/server-ca.crt"
    put "$authorities/client-ca.crt" 0444 "$to/client-ca.crt"
    if [ -e "$to/$file.crt" ] && [ "$again" != renew ]; then
        return
    fi
    rm -f "$authorities/$name.crt" "$authorities/$name.key"
    "$tidemark" cert "$kind" --dir "$authorities" --name "$name" --output tsv "$@"
    put "$authorities/$name.key" 0400 "$to/$file.key"
    put "$authorities/$name.crt" 0444 "$to/$file.crt"
    rm -f "$authorities/$name.crt" "$authorities/$name.key"
}

umask 077
if [ ! -e "$authorities/client-ca.crt" ]; then # which is the last file that is made
    rm -f "$authorities"/*-ca.*
    "$tidemark" cert ca --dir "$authorities" --output tsv
fi
for server in db1 db2 db3; do
    certificate server $server $server server $server localhost 127.0.0.1
done
certificate client app client app app
chmod 0755 "$tls/public"
put "$authorities/server-ca.crt" 0444 "$tls/public/server-ca.crt"
