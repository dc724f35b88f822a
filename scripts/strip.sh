#!/usr/bin/env bash
# Takes the symbols out of a program and puts them into a file beside it, PROGRAM.debug, where
# debuggers and the program's own backtraces find them. Does nothing to a program without them.
set -euo pipefail
program=$1

if readelf --wide --sections "$program" | grep --quiet '\.debug_info'; then
  objcopy --only-keep-debug --compress-debug-sections=zlib "$program" "$program.debug"
  objcopy --strip-unneeded --add-gnu-debuglink="$program.debug" "$program"
fi
