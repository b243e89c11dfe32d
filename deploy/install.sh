#!/bin/sh
# Makes the checkout ready: system packages through apt where that is allowed, Python packages into .venv.
# What cannot be installed is named in one line to type.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "setup: $*" >&2; }

find_python() {
    for name in python3.13 python3.12 python3.11 python3; do
        path=$(command -v "$name" 2>/dev/null) || continue
        if "$path" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$path"
            return 0
        fi
    done
    return 1
}

missing=""
command -v mariadbd >/dev/null 2>&1 || [ -x /usr/sbin/mariadbd ] || missing="$missing mariadb-server"
command -v curl >/dev/null 2>&1 || missing="$missing curl"
if python=$(find_python); then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
else
    missing="$missing python3 python3-venv"
fi

if [ -n "$missing" ]; then
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    if command -v apt-get >/dev/null 2>&1 && { [ -z "$as_root" ] || sudo -n true 2>/dev/null; }; then
        say "installing$missing"
        # Only the programs are wanted: a service that starts by itself would sit on the port.
        export DEBIAN_FRONTEND=noninteractive
        $as_root apt-get update -qq >/dev/null
        # shellcheck disable=SC2086
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
        say "packages are missing; type: sudo apt-get install -y$missing"
        exit 2
    fi
    python=$(find_python) || {
        say "Python 3.11 or newer is needed; this system offers $(python3 --version 2>&1)"
        exit 2
    }
fi

if [ ! -x .venv/bin/python ]; then
    say "creating .venv"
    "$python" -m venv .venv
fi
say "installing Python packages into .venv"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
touch .venv/.ready
say "ready"
