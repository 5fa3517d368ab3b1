#!/bin/sh
# Makes sure that the tests find a server. They use one of, in this order: LUATOMIC_REDIS_URL, a Docker engine, redis-server or
# valkey-server on PATH. Tests that kill, pause or cluster servers need the program on PATH in any case, so it is installed when it
# is missing. The system's own service is not started.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }
say() { echo "ensure-redis: $*" >&2; }

if have redis-server || have valkey-server; then
  exit 0
fi

root=
if [ "$(id -u)" != 0 ]; then
  if have sudo && sudo -n true 2>/dev/null; then
    root='sudo -n'
  fi
fi
may_install() { [ "$(id -u)" = 0 ] || [ -n "$root" ]; }

install_apt() {
  export DEBIAN_FRONTEND=noninteractive
  # Exit code 101 from policy-rc.d is Debian's own way to say: unpack and configure, but start nothing.
  policy=/usr/sbin/policy-rc.d made=
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $root tee "$policy" >/dev/null
    $root chmod 755 "$policy"
    made=yes
  fi
  status=0
  { $root apt-get update -q && $root apt-get install -q -y --no-install-recommends redis-server; } >&2 </dev/null || status=$?
  if [ -n "$made" ]; then
    $root rm -f "$policy"
  fi
  return "$status"
}

install_server() {
  if have brew && [ "$(id -u)" != 0 ]; then
    say 'installing redis with brew'
    brew install redis >&2
  elif ! may_install; then
    say 'neither root nor password-less sudo: cannot install'
    return 1
  elif have apt-get; then
    say 'installing redis-server with apt-get'
    install_apt
  elif have dnf; then
    say 'installing valkey with dnf'
    $root dnf install -y valkey >&2 || $root dnf install -y redis >&2
  elif have apk; then
    say 'installing redis with apk'
    $root apk add --no-cache redis >&2
  else
    say 'no package manager known here'
    return 1
  fi
}

if install_server && { have redis-server || have valkey-server; }; then
  exit 0
fi

say 'install it by hand: apt-get install redis-server (Debian, Ubuntu), dnf install valkey (Fedora), apk add redis (Alpine), brew install redis (macOS)'
if [ -n "${LUATOMIC_REDIS_URL:-}" ] || { have docker && docker info >/dev/null 2>&1; }; then
  say 'going on with the server that is there; tests that start servers of their own will fail'
  exit 0
fi
say 'or start a Docker engine, or set LUATOMIC_REDIS_URL'
exit 1
