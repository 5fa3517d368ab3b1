#!/bin/sh
# changed.sh BASE: the packages of the root module with files that differ from the commit BASE, one a line.
set -eu
base=$(git merge-base "${1:-main}" HEAD)
{ git diff --name-only "$base"; git ls-files --others --exclude-standard; } | while read -r file; do
  dir=$(dirname "$file")
  case $dir in bench | bench/* | otel | otel/* | prometheus | prometheus/* | web/browser*) continue ;; esac
  # A script's folder has no package: its Go lies in gen/.
  case $dir in scripts/*) dir=gen/$(echo "$dir" | cut -d/ -f2) ;; esac
  while [ "$dir" != . ] && ! ls "$dir"/*.go >/dev/null 2>&1; do dir=$(dirname "$dir"); done
  echo "./$dir"
done | sort -u
