#!/bin/sh
# Makes the checkout ready: system packages through apt where that is allowed, Python packages into .venv.
# With the argument `spark` also Java and the extra of that name, half a gigabyte that only the tests, the
# benchmarks and `make demo-spark` need. What cannot be installed is named in one line to type.
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

# Spark 4.3 is compiled for Java 17.
has_java() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    major=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ]
}

# The package that this system offers, the one that Spark knows longest first.
java_package() {
    for major in 17 21 25 24 23 22 20 19 18; do
        if apt-cache policy "openjdk-$major-jre-headless" 2>/dev/null | grep -q 'Candidate: [0-9]'; then
            printf '%s\n' "openjdk-$major-jre-headless"
            return 0
        fi
    done
    return 1
}

extras=dev
stamp=.venv/.ready
needs_java=""
if [ "${1:-}" = spark ]; then
    extras=dev,spark
    stamp=.venv/.ready-spark
    has_java || needs_java=yes
elif [ $# -gt 0 ]; then
    say "$1 is unknown; use: sh deploy/install.sh [spark]"
    exit 2
fi

missing=""
command -v mariadbd >/dev/null 2>&1 || [ -x /usr/sbin/mariadbd ] || missing="$missing mariadb-server"
command -v curl >/dev/null 2>&1 || missing="$missing curl"
if python=$(find_python); then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
else
    missing="$missing python3 python3-venv"
fi

if [ -n "$missing$needs_java" ]; then
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    if command -v apt-get >/dev/null 2>&1 && { [ -z "$as_root" ] || sudo -n true 2>/dev/null; }; then
        $as_root apt-get update -qq >/dev/null
        if [ -n "$needs_java" ]; then
            package=$(java_package) || {
                say "Spark needs Java 17 or newer, and apt offers none; install one and set JAVA_HOME"
                exit 2
            }
            missing="$missing $package"
        fi
        say "installing$missing"
        # Only the programs are wanted: a service that starts by itself would sit on the port.
        # shellcheck disable=SC2086
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
        [ -z "$needs_java" ] || missing="$missing $(java_package || echo openjdk-17-jre-headless)"
        say "packages are missing; type: sudo apt-get install -y$missing"
        exit 2
    fi
    python=$(find_python) || {
        say "Python 3.11 or newer is needed; this system offers $(python3 --version 2>&1)"
        exit 2
    }
    if [ -n "$needs_java" ] && ! has_java; then
        say "Java is installed, but $(command -v java || echo no java) is not 17 or newer; set JAVA_HOME to it"
        exit 2
    fi
fi

if [ ! -x .venv/bin/python ]; then
    say "creating .venv"
    "$python" -m venv .venv
fi
say "installing Python packages ($extras) into .venv"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extras]"
touch "$stamp"
say "ready"
