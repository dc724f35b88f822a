#!/usr/bin/env bash
# Rules of the house that no compiler checks. Prints every violation; fails if there is one.
set -euo pipefail
cd "$(dirname "$0")/.."

bad=0
complain() {
  echo "tidy: $*" >&2
  bad=1
}

# Greps the sources, not what was built, fetched or unpacked. No match is not a failure.
search() { # grep arguments
  grep --recursive --binary-files=without-match \
    --exclude-dir={.git,.postgres,dist,node_modules,target} "$@" || [[ $? -eq 1 ]]
}

# A path that the documents name is there, so that a move can't leave them behind.
# shellcheck disable=SC2016 # the backticks are the documents', not the shell's
while IFS=: read -r document path; do
  [[ -e "$path" ]] || complain "$document names $path, which does not exist"
done < <(search --only-matching --with-filename --extended-regexp --include='*.md' \
  '`(crates|docs|scripts|bench|e2e|deploy)/[A-Za-z0-9_./-]+`' . | tr -d '`')

# A test that does not run proves nothing: only stories that take long are left to `make long`.
while IFS= read -r line; do
  complain "$line: run the test or delete it"
done < <(search --line-number --include='*.rs' '#\[ignore' . |
  grep --invert-match '^\./e2e/.*:#\[ignore = "takes long, see `make long`"\]$' || true)

# Notes to self belong to the issue tracker.
while IFS= read -r line; do
  complain "$line: do it or open an issue"
done < <(search --line-number --word-regexp --extended-regexp 'TOD[O]|FIXM[E]' .)

# What a server can write is opened by one module. Elsewhere the path of such a directory is only
# named: to the kernel as a mount or a place to work in, to create it, to connect to the socket in it;
# or no server has ever seen it.
may_name=(connecting.rs fresh.rs launch.rs metastore.rs server.rs volumes/{clone,live,making,removal}.rs)
while IFS= read -r file; do
  [[ " ${may_name[*]} " == *" ${file#*/local/} "* ]] && continue
  if sed '/#\[cfg(test)\]/,$d' "$file" | grep --quiet --extended-regexp 'host_path\(|join\("(data|log|socket)"\)'; then
    complain "$file: names a directory that a server can write; let crates/coppice-engine/src/local/untrusted open it"
  fi
done < <(find crates/*/src -name '*.rs' -not -path '*/untrusted/*' -not -path 'crates/coppice-test-support/*')

# A command that people are told to run has names in it that others chose: `quoted(` comes right after.
# shellcheck disable=SC2016 # the backticks are Rust's
while IFS= read -r file; do
  complain "$file: a command for people in which a word is not quoted"
done < <(search --files-with-matches --perl-regexp --null-data --include='*.rs' \
  '[`"]coppice [^`"\n]*\{([a-z_]+\}|[0-9]*\}(?![\s\S]{0,300}quoted\())' crates/*/src)

# What the app does follows from what it is given, so that a simulation can play it again: chance is
# `coppice_core::random`, and nothing is decided by which of two things that are ready is looked at first.
# The protocol's crate knows no other one, and a launcher becomes a server at once.
while IFS= read -r line; do
  complain "$line: ask coppice_core::random"
done < <(search --line-number --extended-regexp --include='*.rs' --exclude={sandbox,random}.rs \
  '\brand::fill|getrandom|OsRng' crates/*/src | grep --invert-match '^crates/coppice-pgwire/')
while IFS= read -r file; do
  complain "$file: a select! that is not biased"
done < <(search --files-with-matches --perl-regexp --null-data --include='*.rs' \
  'select! \{\n(?! *biased;)' crates/coppice-app/src)
# A metastore of a simulation has a `now()` of its own, and of other clocks only that of the meter. Two
# places need the time that passes within a statement, and the meter that within a transaction.
while IFS= read -r line; do
  complain "$line: a statement asks now() for the time"
done < <(search --line-number --ignore-case --extended-regexp --exclude={devices,invitations,usage}.rs \
  '(clock|statement|transaction|current|local)_?timestamp|current_(date|time)\b' crates/coppice-store/{src,migrations})

# Whoever changes something of an organization is looked at again when that is locked: `lock_in_tx`. The lock alone
# is for what is done by nobody's right, or by one that is looked at in another way.
may_lock=(billing budgets invitations keys organizations rows subscriptions branches/{create,trash} github/jobs
  marketplace/{arrivals,events} {orb,stripe}/look vercel/{installations,transfers})
while IFS= read -r file; do
  name=${file#crates/coppice-app/src/}
  [[ " ${may_lock[*]} " == *" ${name%.rs} "* ]] || complain "$file: locks an organization; let lock_in_tx do that"
done < <(search --files-with-matches --extended-regexp --include='*.rs' \
  '(lock_(enabled_)?organization|organization_lock)_in_tx' crates/coppice-app/src)

# An SQLSTATE (PostgreSQL's manual, appendix A, has the classes) is said by its name. Tests and the
# simulation say what they expect.
while IFS= read -r file; do
  if sed '/^mod tests {/,$d' "$file" | grep --quiet --extended-regexp \
    '"(0[0-389ABFLPZ]|10|2[0-8BDF]|3[489BDF]|4[024]|5[3-578]|72|F0|HV|P0|XX)[0-9P][0-9][0-9A-Z]"'; then
    complain "$file: an SQLSTATE without its name; crates/coppice-pgwire/src/sqlstate.rs has the names"
  fi
done < <(find crates/*/src -name '*.rs' -not -name '*tests.rs' -not -name sqlstate.rs \
  -not -path 'crates/coppice-simulation/*')

# Tests compile debug builds only. What these alone have is in few places, so that nothing else can
# keep a release from being built.
while IFS= read -r file; do
  complain "$file: depends on whether it is a debug build; that is failpoints' and the simulation's matter"
done < <(search --files-with-matches --extended-regexp --include='*.rs' \
  'debug_assertions|seed_on_this_thread' crates e2e |
  grep --invert-match --extended-regexp \
    '^crates/coppice-(core/src/random|failpoint/src/lib|archive/tests/it/flips)\.rs$|^crates/coppice-simulation/')

# Files that need each other can't be understood, tested or moved one by one; and arrows between
# crates point as docs/ARCHITECTURE.md says.
scripts/structure.py || bad=1

# There is one TLS stack: rustls on aws-lc-rs. A second provider makes rustls panic at run time.
# What is built counts: Cargo.lock also lists what optional features never turned on would bring.
built=$(cargo tree --workspace --locked --quiet --prefix none --format '{p}')
for crate in ring openssl-sys native-tls; do
  if grep --quiet "^$crate v" <<<"$built"; then
    complain "$crate is being built; find who brings it with: cargo tree --workspace --invert $crate"
  fi
done

exit "$bad"
