#!/bin/bash
# Unpacks Debian packages of arm64, with all that they depend on, into a folder. Nothing is installed,
# the machine's own package database is left alone, and no script of a package runs.
#
#     tests/aarch64/root.sh FOLDER PACKAGE...
set -euo pipefail

mkdir -p "${1:?which folder to fill}/.apt"
root=$(cd "$1" && pwd)
shift
mkdir -p "$root"/.apt/lists/partial "$root"/.apt/cache/archives/partial
: >"$root/.apt/status"
apt=(apt-get -qq -o "APT::Architecture=arm64" -o "APT::Architectures::=arm64"
    -o "Dir::State::lists=$root/.apt/lists" -o "Dir::State::status=$root/.apt/status"
    -o "Dir::Cache=$root/.apt/cache" -o "APT::Install-Recommends=false"
    -o "APT::Sandbox::User=$(id -un)" -o "Debug::NoLocking=true")
"${apt[@]}" update
"${apt[@]}" --yes --download-only install "$@"
for package in "$root"/.apt/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
rm -rf "$root/.apt"
