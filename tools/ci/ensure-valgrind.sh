#!/bin/sh
# Makes sure that callgrind is there, which counts the instructions of a server.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }

if have valgrind && have vgdb; then
  exit 0
fi
root=
if [ "$(id -u)" != 0 ]; then
  root='sudo -n'
fi
if have apt-get && { [ -z "$root" ] || sudo -n true 2>/dev/null; }; then
  echo 'ensure-valgrind: installing valgrind with apt-get' >&2
  { $root apt-get update -q && $root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends valgrind; } >&2 </dev/null || true
fi
if have valgrind && have vgdb; then
  exit 0
fi
echo 'ensure-valgrind: install it by hand: apt-get install valgrind (Debian, Ubuntu), dnf install valgrind (Fedora), apk add valgrind (Alpine)' >&2
exit 1
