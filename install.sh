#!/usr/bin/env bash
# Installs what a clone needs on Debian or Ubuntu: the system packages that are missing, a virtual
# environment with the package in it, and for the tests also what they talk to.
#
#     ./install.sh EXTRA          demo, test or dev
#
# VENV names the environment, by default .venv; PYTHON the interpreter, by default the first from
# 3.11 to 3.14 that is found.
set -euo pipefail
cd "$(dirname "$0")"
extra=${1:?which extra: demo, test or dev}
venv=${VENV:-.venv}

fail() { echo "install.sh: $*" >&2; exit 1; }
as_root() {
    if [ "$(id -u)" = 0 ]; then
        DEBIAN_FRONTEND=noninteractive "$@"
    elif command -v sudo >/dev/null; then
        sudo DEBIAN_FRONTEND=noninteractive "$@"
    else
        return 1
    fi
}
updated=
apt_install() {
    command -v apt-get >/dev/null || return 1
    [ -n "$updated" ] || as_root apt-get -qq update || return 1
    updated=yes
    as_root apt-get -qq --yes --no-install-recommends install "$@" >/dev/null
}
is_new_enough() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; }
find_python() {
    for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if is_new_enough "$python"; then return; fi
    done
    return 1
}

if ! find_python; then
    [ -z "${PYTHON:-}" ] || fail "$PYTHON is no Python from 3.11 to 3.14"
    echo "== apt: Python"
    apt_install python3 && find_python || apt_install python3.11 && find_python ||
        fail "Python 3.11 or newer is needed; apt has none"
fi
version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
needed=()
command -v c++ >/dev/null || needed+=(g++)
"$python" -c 'import ensurepip' 2>/dev/null || needed+=("$version-venv")
"$python" -c 'import os, sysconfig as s, sys
sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' || needed+=("$version-dev")
libraries=$(ldconfig -p 2>/dev/null || /sbin/ldconfig -p)
grep -q 'libGL\.so\.1' <<<"$libraries" || needed+=(libgl1)
grep -q 'libgthread-2\.0\.so\.0' <<<"$libraries" || needed+=(libglib2.0-0)
if [ ${#needed[@]} -gt 0 ]; then
    echo "== apt: ${needed[*]}"
    apt_install "${needed[@]}" || fail "cannot install these; as root: apt-get install ${needed[*]}"
fi

if [ "$extra" != demo ]; then
    wanted=()
    for name in $(<.ci/apt); do
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q '^install ok' || wanted+=("$name")
    done
    if [ ${#wanted[@]} -gt 0 ]; then
        echo "== apt, for the tests with real servers and clients: ${wanted[*]}"
        if ! apt_install "${wanted[@]}"; then
            for name in "${wanted[@]}"; do
                apt_install "$name" || echo "cannot install $name: the tests that need it are skipped"
            done
        fi
    fi
fi

echo "== pip: the package with its extra $extra, in $venv; the native module is compiled"
[ -x "$venv/bin/pip" ] || "$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --upgrade pip
"$venv/bin/pip" install --quiet ".[$extra]"
[ "$extra" = demo ] || PATH="$venv/bin:$PATH" .ci/mindspore_lite
