#!/usr/bin/env bash
# Shows that the command and the SDK come from a tag, as users get them: go install and go get fetch
# the tag from a clone, which git is given in place of GitHub.
#
#   deploy/release/install.sh CLONE v0.1.0
set -euo pipefail

[ $# = 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2; }
clone=$(cd "$1" && pwd) version=$2
GO=${GO:-go}
module=github.com/tidemarkdb/tidemark

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.$clone.insteadOf" \
    GIT_CONFIG_VALUE_0="https://$module"
# The tag must not get into the user's cache of modules. All other modules come from there first.
# Without cgo and paths, what was compiled for the release is used again.
GOPROXY="file://$($GO env GOMODCACHE)/cache/download,$($GO env GOPROXY)"
export GOPROXY GONOPROXY=$module GONOSUMDB='*' GOMODCACHE=$work/modules GOBIN=$work/bin \
    GOFLAGS="-modcacherw -trimpath" CGO_ENABLED=0 GOWORK=off
cd "$work"

echo "go install $module/cmd/tidemark@$version"
$GO install "$module/cmd/tidemark@$version"
"$work/bin/tidemark" version
said=$("$work/bin/tidemark" version -o tsv | cut -f 1)
[ "$said" = "$version" ] || { echo "the program says that it is $said"; exit 1; }

mkdir app
cd app
cat > main.go <<END
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"$module/kv"
)

// It finds no cluster: that the SDK says so is enough.
func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	client, err := kv.Open(ctx, []string{"127.0.0.1:1"})
	if err == nil {
		defer client.Close()
		_, err = client.Keyspace("fruit").Get(ctx, []byte("apple"))
	}
	fmt.Println(err)
	if err == nil || errors.Is(err, kv.ErrNotFound) {
		os.Exit(1)
	}
}
END
echo "go get $module/kv@$version"
$GO mod init example.com/app 2>/dev/null
$GO get "$module/kv@$version"
$GO build -o app .
$GO list -m "$module"
./app
