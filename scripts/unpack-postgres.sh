#!/usr/bin/env bash
# Unpacks the PostgreSQL builds named in scripts/postgres.lock into .postgres/<version>/{bin,lib,share}.
#
# A version is there or it is not: each is prepared in a scratch directory beside its place and
# renamed into it last, so an interrupted run is simply repeated. The file `.integrity` in each
# says which package it was made of; when the lock file names another one, it is made anew.
set -euo pipefail
cd "$(dirname "$0")/.."
# Servers run under other accounts than the one that unpacks.
umask 022

fail() {
  echo "setup: $*" >&2
  exit 1
}

# The lock file's lines for this machine: "version package-version integrity".
wanted() {
  local arch
  case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) arch=x64 ;;
    Linux-aarch64) arch=arm64 ;;
    *) fail "there is no PostgreSQL build for $(uname -sm); put your own into .postgres/<version>/{bin,lib,share}" ;;
  esac
  awk -v arch="$arch" '!/^#/ && $2 == arch { print $1, $3, $4, arch }' scripts/postgres.lock
}

is_unpacked() { # version integrity
  [[ -x ".postgres/$1/bin/postgres" && "$(cat ".postgres/$1/.integrity" 2>/dev/null)" == "$2" ]]
}

integrity_of() { # file
  node -e '
    const hash = require("crypto").createHash("sha512").update(require("fs").readFileSync(process.argv[1]));
    console.log("sha512-" + hash.digest("base64"));
  ' "$1"
}

# npm packages can't hold symbolic links: the package lists them in a file and leaves making them
# to an install script, which is not run here.
make_symlinks() { # package directory
  node -e '
    const { readFileSync, symlinkSync } = require("fs");
    const { dirname, relative } = require("path");
    for (const { source, target } of JSON.parse(readFileSync("native/pg-symlinks.json"))) {
      symlinkSync(relative(dirname(target), source), target);
    }
  '
}

unpack() { # version package-version integrity arch
  local version=$1 package_version=$2 integrity=$3 package="@embedded-postgres/linux-$4"
  local scratch found
  echo "setup: unpacking PostgreSQL $version"
  scratch=$(mktemp -d .postgres/.scratch.XXXXXX)
  npm pack --loglevel=error --no-update-notifier --pack-destination "$scratch" "$package@$package_version" >/dev/null ||
    fail "npm could not fetch $package@$package_version; check that the npm registry can be reached and run again"
  found=$(integrity_of "$scratch"/*.tgz)
  [[ "$found" == "$integrity" ]] ||
    fail "$package@$package_version is not the package pinned in scripts/postgres.lock (found $found); nothing was unpacked"
  tar --extract --gzip --no-same-owner --file "$scratch"/*.tgz --directory "$scratch"
  (cd "$scratch/package" && make_symlinks)

  local native=$scratch/package/native
  # These need the interpreters of the machine they were built on: listed, they could only fail.
  rm -f "$native"/share/postgresql/extension/*{plperl,plpython,pltcl}*
  rm "$native/pg-symlinks.json"
  found=$("$native/bin/postgres" --version) || fail "PostgreSQL $version does not start on this machine"
  [[ "$found" == "postgres (PostgreSQL) $version" ]] ||
    fail "$package@$package_version says it is '$found', not $version; correct scripts/postgres.lock"
  echo "$integrity" >"$native/.integrity"
  # Without this, a power cut could leave the new name with empty files behind it.
  sync --file-system "$native"
  rm -rf ".postgres/$version"
  mv "$native" ".postgres/$version"
  rm -rf "$scratch"
}

lines=$(wanted)
missing=()
while read -r line; do
  read -r version _ integrity _ <<<"$line"
  is_unpacked "$version" "$integrity" || missing+=("$line")
done <<<"$lines"
[[ ${#missing[@]} -gt 0 ]] || exit 0

mkdir -p .postgres
# One at a time: the scratch directories removed below must not be another run's.
exec 9<.postgres
flock 9
rm -rf .postgres/.scratch.*
for line in "${missing[@]}"; do
  read -r version package_version integrity arch <<<"$line"
  # Another run may have made it while this one waited.
  is_unpacked "$version" "$integrity" || unpack "$version" "$package_version" "$integrity" "$arch"
done
