#!/bin/sh
# Unpacks newer Sidekiqs, each with the Ruby and the C library it was built for, from
# Debian's newer suites, beside a system that keeps its own. Nothing is installed.
#
#   sh fetch-gems.sh DIR [SUITE...]     suites: trixie (Sidekiq 7) and sid (Sidekiq 8)
#
# For each suite it writes DIR/SUITE/bin/ruby, and with LUATOMIC_SIDEKIQ_GEMS=DIR the
# interop tests run with each of these too. Needs apt-get and dpkg-deb, and an amd64 or
# arm64 Debian or a relative; about 20 MB a suite are downloaded.
set -eu

dir=${1:?usage: fetch-gems.sh DIR [SUITE...]}
shift
[ $# -gt 0 ] || set -- trixie sid
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
# The mirror that this system uses; a relative of Debian needs LUATOMIC_DEBIAN.
mirror=${LUATOMIC_DEBIAN:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' |
  grep -v security | head -n 1)}
arch=$(dpkg --print-architecture)

for suite in "$@"; do
  root=$dir/$suite
  if [ -x "$root/bin/ruby" ]; then
    continue
  fi
  rm -rf "$root"
  apt=$root/apt
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$root/bin"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources"
  cat >"$apt/conf" <<EOF
Dir::Etc::sourcelist "$apt/sources";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::lists "$apt/lists";
Dir::State::status "/dev/null";
Dir::Cache "$apt/cache";
Debug::NoLocking "true";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Sandbox::User "root";
EOF
  APT_CONFIG=$apt/conf apt-get -qq update
  # With an empty status file nothing is there, so all that Sidekiq depends on comes,
  # down to the C library.
  APT_CONFIG=$apt/conf apt-get -qq -y --no-install-recommends --download-only install ruby-sidekiq >/dev/null
  for deb in "$apt"/cache/archives/*.deb; do
    case ${deb##*/} in
    debconf_* | ca-certificates_* | fonts-* | libjs-* | openssl*) ;;
    *) dpkg-deb -x "$deb" "$root" ;;
    esac
  done
  rm -rf "$apt"

  # The new loader runs the new Ruby. Its library folders are built into it, so those
  # of this root are put before them; the gems are found by their folders alone.
  loader=$(find "$root/lib" "$root/lib64" "$root/usr/lib" "$root/usr/lib64" \
    -name 'ld-linux-*.so.*' 2>/dev/null | head -n 1)
  libc=$(find "$root/lib" "$root/usr/lib" -name 'libc.so.6' 2>/dev/null | head -n 1)
  libruby=$(find "$root/usr/lib" -name 'libruby-3*.so.3*' | head -n 1)
  ruby=$(find "$root/usr/bin" -name 'ruby3*' | head -n 1)
  lib=
  for folder in "$root"/usr/share/rubygems-integration/*/gems/*/lib \
    "$root"/usr/share/rubygems-integration/*/gems/concurrent-ruby-*/lib/concurrent-ruby \
    "$root"/usr/lib/*/rubygems-integration/*/gems/*/lib "$root"/usr/lib/*/rubygems-integration/*/extensions/*/*/* \
    "$root"/usr/lib/ruby/vendor_ruby/3* "$root"/usr/lib/*/ruby/vendor_ruby/3* "$root"/usr/lib/ruby/vendor_ruby \
    "$root"/usr/lib/*/ruby/3* "$root"/usr/lib/ruby/3*; do
    if [ -d "$folder" ]; then
      lib=$lib${lib:+:}$folder
    fi
  done
  cat >"$root/bin/ruby.new" <<EOF
#!/bin/sh
RUBYLIB=$lib GEM_HOME=$root/none GEM_PATH=$root/none exec $loader --library-path ${libc%/*}:${libruby%/*} $ruby "\$@"
EOF
  chmod +x "$root/bin/ruby.new"
  "$root/bin/ruby.new" \
    -e 'require "sidekiq"; require "sidekiq/api"; warn "Sidekiq #{Sidekiq::VERSION}, Ruby #{RUBY_VERSION}"'
  mv "$root/bin/ruby.new" "$root/bin/ruby" # only one that works has the name
done
