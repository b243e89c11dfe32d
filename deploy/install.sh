#!/bin/sh
# Makes the checkout ready: system packages through apt where that is allowed, Python packages into .venv.
#
#   sh deploy/install.sh                       what `make demo` needs
#   sh deploy/install.sh spark                 Java and the extra `spark` too (half a gigabyte): tests,
#                                              benchmarks, `make demo-spark`
#   PYTHON=/usr/bin/python3.13 sh deploy/install.sh    with this interpreter
#   sh deploy/install.sh which-python          prints the interpreter that would be taken
#   sh deploy/install.sh same-python           fails where .venv is of another Python than PYTHON
#
# Without PYTHON the system's python3 is taken, which is updated with the system, else the newest of those that
# all packages have wheels for. What cannot be installed is named in one line to type.
set -eu
cd "$(dirname "$0")/.."

SUPPORTED="3.14 3.13 3.12 3.11"

say() { printf '%s\n' "setup: $*" >&2; }

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

is_supported() {
    case " $SUPPORTED " in
    *" $1 "*) return 0 ;;
    esac
    return 1
}

interpreters() {
    if [ -n "${PYTHON:-}" ]; then
        printf '%s\n' "$PYTHON"
        return
    fi
    printf '%s\n' python3
    for version in $SUPPORTED; do printf 'python%s\n' "$version"; done
}

find_python() {
    for name in $(interpreters); do
        path=$(command -v "$name" 2>/dev/null) || continue
        version=$(version_of "$path") || continue
        if is_supported "$version"; then
            printf '%s\n' "$path"
            return 0
        fi
    done
    return 1
}

no_python() {
    name=${PYTHON:-python3}
    is=$(version_of "$name") && is="$name is $is" || is="$name does not run"
    say "Python 3.11 to 3.14 is needed, for which all packages have wheels, and $is;" \
        "install one of them, or name it: PYTHON=/path/to/python3.13 make setup"
    exit 2
}

is_offered() { apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [0-9]'; }

# For a system whose python3 is older or newer than what is supported.
python_packages() {
    for version in $SUPPORTED; do
        if is_offered "python$version-venv"; then
            printf '%s\n' "python$version python$version-venv"
            return 0
        fi
    done
    return 1
}

# Spark 4 is compiled for Java 17.
has_java() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    major=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ]
}

# The package that this system offers, the one that Spark knows longest first.
java_package() {
    for major in 17 21 25 24 23 22 20 19 18; do
        if is_offered "openjdk-$major-jre-headless"; then
            printf '%s\n' "openjdk-$major-jre-headless"
            return 0
        fi
    done
    return 1
}

# Only the programs are wanted: a service that starts, now or at the next boot, would sit on the port.
apt_install() {
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        # shellcheck disable=SC2064
        trap "$as_root rm -f $policy" EXIT
        printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
        $as_root chmod 755 "$policy"
    fi
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install \
        -y -qq --no-install-recommends "$@" >/dev/null
    [ ! -d /run/systemd/system ] || for package in "$@"; do
        case $package in
        etcd-server) $as_root systemctl --quiet disable etcd ;;
        mariadb-server) $as_root systemctl --quiet disable mariadb ;;
        prometheus) $as_root systemctl --quiet disable prometheus ;;
        esac
    done
}

# Runs what says nothing for minutes, and says every ten seconds that it is at work.
patiently() {
    what=$1
    shift
    (
        seconds=0
        while sleep 1 >/dev/null 2>&1; do
            seconds=$((seconds + 1))
            [ $((seconds % 10)) != 0 ] || say "$what, for $seconds s"
        done
    ) &
    ticking=$!
    code=0
    "$@" || code=$?
    kill "$ticking" 2>/dev/null || :
    wait "$ticking" 2>/dev/null || :
    return "$code"
}

# What builds the Debian package and installs it below a directory, which a test does.
debian_tools() {
    command -v dpkg >/dev/null 2>&1 || return 0
    command -v dh >/dev/null 2>&1 || printf ' debhelper'
    command -v systemd-sysusers >/dev/null 2>&1 || printf ' systemd'
    [ "$(id -u)" = 0 ] || command -v fakeroot >/dev/null 2>&1 || printf ' fakeroot'
}

extras=dev
stamp=.venv/.ready
needs_java=""
debian=""
case "$#${1:-}" in
0) ;;
1spark)
    extras=dev,spark
    stamp=.venv/.ready-spark
    has_java || needs_java=yes
    debian=$(debian_tools)
    ;;
1which-python)
    find_python || no_python
    exit 0
    ;;
1same-python) ;;
*)
    say "$* is unknown; use: sh deploy/install.sh [spark]"
    exit 2
    ;;
esac

if [ -n "${PYTHON:-}" ] && [ -x .venv/bin/python ]; then
    python=$(find_python) || no_python
    if [ "$(version_of .venv/bin/python)" != "$(version_of "$python")" ]; then
        say ".venv is of Python $(version_of .venv/bin/python), not of $PYTHON; type: make clean"
        exit 2
    fi
fi
[ "${1:-}" != same-python ] || exit 0

missing=""
command -v mariadbd >/dev/null 2>&1 || [ -x /usr/sbin/mariadbd ] || missing="$missing mariadb-server"
command -v etcd >/dev/null 2>&1 || wants_etcd=yes
command -v curl >/dev/null 2>&1 || missing="$missing curl"
# The tests try alerts and dashboards with it.
[ "$extras" = dev ] || command -v promtool >/dev/null 2>&1 || missing="$missing prometheus"
if python=$(find_python); then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python$(version_of "$python")-venv"
elif [ -n "${PYTHON:-}" ]; then
    no_python
else
    wants_python=yes
fi

if [ -n "$missing$needs_java$debian${wants_etcd:-}${wants_python:-}" ]; then
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    may_install=""
    if command -v apt-get >/dev/null 2>&1 && { [ -z "$as_root" ] || sudo -n true 2>/dev/null; }; then
        may_install=yes
        $as_root apt-get update -qq >/dev/null || say "apt-get update failed; going on with what apt knows"
        # Where it cannot be had, the one of the extra `playground` will do for a demo.
        [ -z "${wants_etcd:-}" ] || ! is_offered etcd-server || missing="$missing etcd-server"
        # Where they cannot be had, that test says what it lacks.
        for package in $debian; do
            ! is_offered "$package" || missing="$missing $package"
        done
    fi
    if [ -n "${wants_python:-}" ]; then
        package=$(python_packages) || no_python
        missing="$missing $package"
    fi
    if [ -n "$needs_java" ]; then
        package=$(java_package) || {
            say "Spark needs Java 17 or newer, and apt offers none; install one and set JAVA_HOME"
            exit 2
        }
        missing="$missing $package"
    fi
    if [ -z "$may_install" ] && [ -n "$missing" ]; then
        say "packages are missing; type: sudo apt-get install -y$missing"
        exit 2
    fi
    if [ -n "$missing" ]; then
        say "installing$missing"
        # shellcheck disable=SC2086
        patiently "installing system packages" apt_install $missing
    fi
    python=$(find_python) || no_python
    if [ -n "$needs_java" ] && ! has_java; then
        say "Java is installed, but $(command -v java || echo no java) is not 17 or newer; set JAVA_HOME to it"
        exit 2
    fi
fi

if [ ! -x .venv/bin/python ]; then
    say "creating .venv with $python"
    "$python" -m venv .venv
fi
say "installing Python packages ($extras) into .venv"
patiently "installing Python packages" \
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extras]"
# What pip installs has its bytecode; a checkout's first start would compile it, each one where it is not writable.
.venv/bin/python -m compileall -q common deploy drainer pump pumpclient
touch "$stamp"
say "ready"
