#!/usr/bin/env bash
# Makes this machine able to build, run and test Coppice: Debian packages, the PostgreSQL builds in
# .postgres, and what the end-to-end tests use of npm, PyPI and Debian without installing it, in
# node_modules below e2e, target/python and target/prometheus; and builds the console. Safe to repeat at
# any time; with nothing to do it takes a blink.
set -euo pipefail
cd "$(dirname "$0")/.."
# An ordinary user's PATH may lack the places of mkfs and losetup.
PATH=$PATH:/usr/sbin:/sbin

fail() {
  echo "setup: $*" >&2
  exit 1
}

have() { # commands
  command -v "$@" >/dev/null
}

have_file() { # pattern
  compgen -G "$1" >/dev/null
}

# Prints the Debian packages that are missing, judged by what they bring: that is much faster than
# asking dpkg, and a machine that has it from elsewhere needs no package.
missing_packages() {
  have cc || echo gcc libc6-dev
  have pkg-config || echo pkg-config
  have curl || echo curl
  have jq || echo jq
  have mkfs.btrfs || echo btrfs-progs
  have mkfs.xfs || echo xfsprogs
  have mkfs.ext4 || echo e2fsprogs
  { have losetup && have setpriv && have flock; } || echo util-linux mount
  { have systemd-analyze && have_file /lib/systemd/systemd; } || echo systemd
  have_file '/usr/lib/postgresql/*/bin/postgres' || echo postgresql
  { have psql && have pgbench; } || echo postgresql-client
  have_file '/usr/share/postgresql/*/extension/pg_stat_statements.control' || echo postgresql-contrib
  have chromium-headless-shell || echo chromium-headless-shell
  have pdftotext || echo poppler-utils
  have javac || echo default-jdk-headless
  have_file /usr/share/java/postgresql.jar || echo libpostgresql-jdbc-java
  { have python3 && have_file '/usr/lib/python3*/ensurepip/__init__.py'; } || echo python3 python3-venv
}

install_packages() { # packages
  [[ $EUID -eq 0 ]] ||
    fail "some Debian packages are missing; run this, then try again: sudo apt-get install -y --no-install-recommends $*"
  have apt-get || fail "this machine has no apt-get; install what these Debian packages bring, then try again: $*"

  # Debian's PostgreSQL is wanted for its programs: it should not start a server of its own. The
  # setting holds during this installation only; clusters that exist are left alone.
  local no_cluster=/etc/postgresql-common/createcluster.d/coppice-setup.conf
  trap 'rm -f '"$no_cluster" EXIT
  mkdir -p "${no_cluster%/*}"
  echo 'create_main_cluster = false' >"$no_cluster"

  echo "setup: installing $*"
  export DEBIAN_FRONTEND=noninteractive
  local apt=(apt-get --quiet --quiet --option DPkg::Lock::Timeout=300 --option Dpkg::Use-Pty=0)
  "${apt[@]}" update </dev/null || fail "apt-get update failed; its message is above"
  "${apt[@]}" install --yes --no-install-recommends "$@" </dev/null ||
    fail "apt-get could not install $*; its message is above"
}

# What a directory's package-lock.json pins.
install_npm() { # directory
  local installed=$1/node_modules/.installed-lock.json
  cmp --silent "$1/package-lock.json" "$installed" && return
  echo "setup: installing the npm packages of $1"
  # No package runs anything of its own here.
  npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund --loglevel=error ||
    fail "npm could not install $1/package-lock.json; its message is above"
  cp "$1/package-lock.json" "$installed"
}

# The console, which cargo puts into the program. Built anew when something that it is made of is different.
build_console() {
  install_npm console
  local made_of
  made_of=$(find console openapi/openapi.json -type f -not -path '*/node_modules/*' -not -path 'console/dist/*' -not -name schema.d.ts -print0 |
    sort --zero-terminated | xargs --null sha256sum)
  [[ -f console/dist/index.html ]] && cmp --silent - console/dist/.made-of <<<"$made_of" && return
  echo "setup: building the console"
  npm run build --prefix console --silent || fail "npm could not build console/; its message is above"
  echo "$made_of" >console/dist/.made-of
}

# What tests use of PyPI, as the lists pin it.
install_python_packages() {
  local lists=({e2e/{barman,github,schemathesis,mail,mcp,oauth_clients,snippets,clients,webhooks,stripe},crates/coppice-archive/tests/{moto,swift}}/requirements.txt)
  cat "${lists[@]}" | cmp --silent - target/python/installed.txt && return
  echo "setup: installing the Python packages of ${lists[*]}"
  rm -rf target/python
  mkdir -p target
  python3 -m venv target/python || fail "python3 could not make target/python; its message is above"
  local list
  for list in "${lists[@]}"; do
    target/python/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement "$list" ||
      fail "pip could not install $list; its message is above"
  done
  cat "${lists[@]}" >target/python/installed.txt
}

# Prometheus with promtool. Unpacked, not installed: the package would start a service, and for this
# nobody has to be root.
install_prometheus() {
  [[ -x target/prometheus/usr/bin/promtool ]] && return
  have apt-get ||
    fail "this machine has no apt-get; put prometheus and promtool into target/prometheus/usr/bin, then try again"
  echo "setup: unpacking the Debian package prometheus"
  local fetched=target/prometheus.partial
  rm -rf "$fetched" target/prometheus
  mkdir -p "$fetched"
  # As root, apt-get fetches under an account that has to be able to write here.
  local apt=(apt-get --quiet --quiet --option APT::Sandbox::User=root download prometheus)
  if ! (cd "$fetched" && "${apt[@]}" 2>/dev/null); then
    [[ $EUID -eq 0 ]] ||
      fail "apt-get could not download prometheus; run this, then try again: sudo apt-get update"
    apt-get --quiet --quiet --option DPkg::Lock::Timeout=300 update </dev/null ||
      fail "apt-get update failed; its message is above"
    (cd "$fetched" && "${apt[@]}") || fail "apt-get could not download prometheus; its message is above"
  fi
  dpkg-deb --extract "$fetched"/prometheus_*.deb "$fetched" ||
    fail "dpkg-deb could not unpack prometheus; its message is above"
  rm "$fetched"/prometheus_*.deb
  mv "$fetched" target/prometheus
}

# GitHub's own description of its API, as far as it is asked. Its package has it in eleven forms, 385 MB
# unpacked, of which one is wanted.
describe_github() {
  local package=@octokit/openapi@23.0.2 cut=target/github/description.json made_of
  local sum=a55f0cecbf46636dc0c9b36f4e6a369f28e6a669edebedac444fedaabd192d07
  sum+=0f4b8967c3bbb979918d9b044d9010b70fb8195db171e401f32d455105718386
  made_of=$(sha256sum e2e/github/describe.mjs; echo "$package $sum")
  [[ -f $cut ]] && cmp --silent - target/github/.made-of <<<"$made_of" && return
  echo "setup: fetching the npm package $package"
  local fetched=target/github.partial
  rm -rf "$fetched" target/github
  mkdir -p "$fetched"
  npm pack "$package" --pack-destination "$fetched" --silent >/dev/null ||
    fail "npm could not fetch $package; its message is above"
  [[ $(sha512sum <"$(echo "$fetched"/*.tgz)") == "$sum  -" ]] ||
    fail "the npm package $package is another one than it was"
  tar --extract --gzip --file "$fetched"/*.tgz --directory "$fetched" --strip-components=2 \
    package/generated/api.github.com.json
  node e2e/github/describe.mjs "$fetched/api.github.com.json" "$fetched/description.json"
  rm "$fetched"/*.tgz "$fetched/api.github.com.json"
  echo "$made_of" >"$fetched/.made-of"
  mv "$fetched" target/github
}

have cargo || fail "cargo is missing; install Rust 1.95 or newer (https://rustup.rs), then try again"
{ have node && have npm; } || fail "node or npm is missing; install Node.js 20 or newer, then try again"

mapfile -t packages < <(missing_packages | tr ' ' '\n')
[[ ${#packages[@]} -eq 0 ]] || install_packages "${packages[@]}"

# Brings the pip that fetches a part of PostgreSQL.
install_python_packages
scripts/unpack-postgres.sh
# The published client of the API; what drives a browser, and a provider to sign in at; a standard client;
# serverless drivers; what people connect with; GitHub; Vercel; what signs as Stripe does, and a Stripe that
# others rebuilt; what signs as Orb.
install_npm e2e/sdk
install_npm e2e/browser
install_npm e2e/oauth_clients
install_npm e2e/serverless
install_npm e2e/snippets
install_npm e2e/clients
install_npm e2e/mcp
install_npm e2e/webhooks
install_npm e2e/github
describe_github
install_npm e2e/vercel
install_npm e2e/stripe
install_npm e2e/orb
build_console
install_prometheus
