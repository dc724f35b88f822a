#!/usr/bin/env bash
# Runs the stories of whole platforms. A story that fails prints its platform's log, thousands of
# lines, so what failed is said once more at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

output=target/stories.log
if ! cargo test --workspace --locked --no-fail-fast --test e2e 2>&1 | tee "$output"; then
  echo "--- what failed, from $output" >&2
  grep -A 12 "^thread .* panicked at " "$output" >&2
  exit 1
fi
