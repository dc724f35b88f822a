#!/usr/bin/env bash
# Runs tests: a name for their output, and which (arguments of `cargo test`). Those that fail are
# run once more, without others beside them: one that fails again is broken, and one that does not
# is named as unsteady. What fails prints its platform's log, thousands of lines, so the reason is
# said again at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
shift
which=("$@")

run() { cargo test --workspace --locked --no-fail-fast "${which[@]}" "$@" 2>&1; }
said() { grep -A 12 "^thread .* panicked at " "$1" >&2 || tail -n 30 "$1" >&2; }

mkdir -p target
output=target/$name.log
if run | tee "$output"; then exit 0; fi
mapfile -t failed < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$output" | sort -u)
echo "--- what failed, from $output" >&2
said "$output"
# More than a few are no accident, and where none has a name, nothing ran.
if ((${#failed[@]} == 0 || ${#failed[@]} > 3)); then exit 1; fi

again=target/$name-again.log
if RUST_TEST_THREADS=1 run -- --exact "${failed[@]}" | tee "$again"; then
  printf -- '--- unsteady, passed when run again: %s\n' "${failed[@]}" >&2
  exit 0
fi
echo "--- what failed twice, from $again" >&2
said "$again"
exit 1
