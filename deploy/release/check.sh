#!/usr/bin/env bash
# Makes a release of HEAD twice, in clones in different folders, and compares the bytes; then looks
# at what is in it with the tools that are there, and says what it has left out:
#
#   dpkg-deb, lintian    the deb
#   rpm                  the rpm
#   go                   go install and go get from the tag
#
# If HEAD has no tag of a release, the clones get a section in the changelog and a tag of their own.
# The second clone compiles everything anew, so that this takes a quarter of an hour;
# SHARE_CACHE=1 has it use what was compiled for the first one.
set -euo pipefail
cd "$(dirname "$0")/../.."

GO=${GO:-go}
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
failed=0

step() { echo "==> $1"; }
left_out() { echo "left out: there is no $1"; }
wrong() { echo "NOT OK: $*"; failed=1; }
has() { command -v "$1" >/dev/null; }

step "two clones"
first=$work/first second="$work/a folder/with a longer name"
git clone -q --no-hardlinks . "$first"
git -C "$first" checkout -q "$(git rev-parse HEAD)"
version=$(git -C "$first" -c versionsort.suffix=-rc tag --points-at HEAD --list 'v[0-9]*' \
    --sort version:refname | tail -n 1)
major=$(sed -n 's/^## v\([0-9]*\)\..*/\1/p' CHANGELOG.md | head -n 1)
other=v${major:-0}.998.0
if [ -z "$version" ]; then
    version=v${major:-0}.999.0
    make -s -C "$first" release-changelog VERSION="$version" GO="$GO"
    git -C "$first" -c user.name=check -c user.email=check@example.com commit -q -a -m "$version"
    git -C "$first" tag "$version"
fi
mkdir -p "$(dirname "$second")"
git clone -q --no-hardlinks --branch "$version" "$first" "$second" 2>/dev/null
out=$first/bin/release/$version name=tidemark_${version#v}
of_packages=${version#v} of_packages=${of_packages/-/\~}

step "a release is refused from a changed clone, without a tag, and without a section"
refused() {
    if make -s -C "$first" release "VERSION=$1" GO="$GO" 2>"$work/refused"; then
        wrong "$1 was released although $2"
    elif ! grep -q "$3" "$work/refused"; then
        cat "$work/refused"
        wrong "$1 was refused for another reason than that $2"
    fi
}
touch "$first/new"
refused "$version" "the clone is changed" "differs from its commit"
rm "$first/new"
refused "$other" "there is no such tag" "there is no tag $other"
git -C "$first" tag "$other"
refused "$other" "the changelog has no section for it" "no section for $other"
git -C "$first" tag -d "$other" >/dev/null

step "the first release"
make -s -C "$first" release VERSION="$version" GO="$GO"

step "the second one, with another umask, time zone, language, settings, and times of files"
(
    umask 077
    find "$second" -not -path '*/.git/*' -exec touch -h -d 2001-02-03T04:05:06 {} +
    chmod -R go-rwx "$second"
    [ -n "${SHARE_CACHE:-}" ] || export GOCACHE=$work/cache
    export TZ=Asia/Kathmandu LC_ALL=C.UTF-8 GOFLAGS="-buildvcs=false" GOAMD64=v2 \
        SOURCE_DATE_EPOCH=1 TIDEMARK_ENDPOINTS=192.0.2.1:7400 TMPDIR="$work"
    make -s -C "$second" release VERSION="$version" GO="$GO"
)
(cd "$out" && sha256sum --check --quiet SHA256SUMS) || wrong "SHA256SUMS"
if diff -r "$out" "$second/bin/release/$version"; then
    echo "the same bytes: $(wc -l < "$out/SHA256SUMS") files"
    cat "$out/SHA256SUMS"
else
    wrong "the second release differs from the first"
fi

step "the program of this machine"
here=$($GO env GOOS)_$($GO env GOARCH)
mkdir "$work/unpacked"
tar -xzf "$out/${name}_$here.tar.gz" -C "$work/unpacked"
unpacked=$work/unpacked/${name}_$here
"$unpacked/tidemark" version
[ "$("$unpacked/tidemark" version -o tsv | cut -f 1)" = "$version" ] ||
    wrong "the version"
for shell in bash zsh fish; do
    "$unpacked/tidemark" completion $shell >/dev/null || wrong "completion $shell"
    if has $shell; then
        find "$unpacked/completions/$shell" -type f -exec $shell -n {} \; || wrong "$shell"
    fi
done
for file in LICENSE README.md CHANGELOG.md man/man1/tidemark.1 man/man1/tidemark-start.1; do
    [ -s "$unpacked/$file" ] || wrong "the archive has no $file"
done
if has readelf; then
    for archive in "$out"/*linux*.tar.gz; do
        tar -xzf "$archive" -O "$(basename "$archive" .tar.gz)/tidemark" > "$work/binary"
        readelf -l "$work/binary" > "$work/listed"
        ! grep -q INTERP "$work/listed" || wrong "$archive: its program is not static"
    done
else
    left_out readelf
fi

# Files that both packages have. Of the manual pages this is one of many.
files="/usr/bin/tidemark /usr/lib/systemd/system/tidemark.service /etc/tidemark
    /etc/tidemark/tidemark.env /var/lib/tidemark /usr/share/man/man1/tidemark-start.1.gz
    /usr/share/bash-completion/completions/tidemark
    /usr/share/fish/vendor_completions.d/tidemark.fish /usr/share/doc/tidemark/install.md"

step "deb"
for arch in amd64 arm64; do
    deb=$out/tidemark_${of_packages}_$arch.deb
    if ! has dpkg-deb; then
        left_out dpkg-deb
        break
    fi
    [ "$(dpkg-deb -f "$deb" Version)" = "$of_packages" ] || wrong "$deb: its version"
    [ "$(dpkg-deb -f "$deb" Architecture)" = "$arch" ] || wrong "$deb: its architecture"
    dpkg-deb -c "$deb" | awk '{ sub(/^\./, "", $6); sub(/\/$/, "", $6); print $6 }' \
        > "$work/listed"
    for file in $files /usr/share/doc/tidemark/copyright \
        /usr/share/zsh/vendor-completions/_tidemark; do
        grep -qx "$file" "$work/listed" || wrong "$deb has no $file"
    done
    mkdir "$work/control.$arch"
    dpkg-deb -e "$deb" "$work/control.$arch"
    [ "$(cat "$work/control.$arch/conffiles")" = /etc/tidemark/tidemark.env ] ||
        wrong "$deb: its configuration files"
    for script in postinst prerm postrm; do
        [ -x "$work/control.$arch/$script" ] || wrong "$deb has no $script"
    done
    if has lintian; then
        # The program is static, its licence is there in full, and its changelog is that of the
        # release.
        lintian --fail-on error --suppress-tags statically-linked-binary,no-changelog \
            --suppress-tags copyright-file-contains-full-apache-2-license \
            --suppress-tags copyright-not-using-common-license-for-apache2 "$deb" ||
            wrong "lintian: $deb"
    fi
done
has lintian || left_out lintian

step "rpm"
for arch in x86_64 aarch64; do
    rpm=$out/tidemark-$of_packages-1.$arch.rpm
    if ! has rpm; then
        left_out rpm
        break
    fi
    rpm -qp --nosignature --qf '%{NAME} %{VERSION} %{ARCH}\n' "$rpm" > "$work/listed"
    [ "$(cat "$work/listed")" = "tidemark $of_packages $arch" ] || wrong "$rpm: its version"
    rpm -K --nosignature "$rpm" >/dev/null || wrong "$rpm: its checksums"
    rpm -qpl --nosignature "$rpm" > "$work/listed"
    for file in $files /usr/share/licenses/tidemark/LICENSE \
        /usr/share/zsh/site-functions/_tidemark; do
        grep -qx "$file" "$work/listed" || wrong "$rpm has no $file"
    done
    [ "$(rpm -qpc --nosignature "$rpm")" = /etc/tidemark/tidemark.env ] ||
        wrong "$rpm: its configuration files"
    for script in prein postin preun postun; do
        rpm -qp --nosignature --qf "%{${script^^}}" "$rpm" | grep -q '^set -e' ||
            wrong "$rpm has no $script"
    done
done

step "go install and go get from the tag"
deploy/release/install.sh "$first" "$version" || wrong "go install, go get"
exit $failed
