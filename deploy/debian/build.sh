#!/bin/sh
# Builds the Debian package: sh deploy/debian/build.sh DIRECTORY [FLAG OF dpkg-buildpackage ...]. The tree is copied to
# DIRECTORY first, so that nothing is written into the checkout or beside it; the package is in DIRECTORY, too.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift

version=$(PYTHONPATH=common python3 -B -c 'from tidb_binlog.version import VERSION; print(VERSION)')
source="$out/tidb-binlog-$version"
rm -rf "$source"
mkdir "$source"
cp -R pyproject.toml README.md LICENSE CHANGELOG.md docs common pump pumpclient drainer deploy "$source"
find "$source" -name __pycache__ -prune -exec rm -rf {} +
mv "$source/deploy/debian" "$source/debian"

date=$(date -R ${SOURCE_DATE_EPOCH:+-d "@$SOURCE_DATE_EPOCH"})
maintainer=$(sed -n 's/^Maintainer: //p' "$source/debian/control")
cat > "$source/debian/changelog" <<CHANGES
tidb-binlog ($version) unstable; urgency=medium

  * Release $version; CHANGELOG.md has what is new.

 -- $maintainer  $date
CHANGES

cd "$source"
dpkg-buildpackage --build=binary --no-sign "$@"
cd "$out"
rm -rf "$source"
