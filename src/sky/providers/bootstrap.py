"""The script that makes a node of a machine that has nothing of ours: a shell, and a way to fetch a file.

Decides: how the agent's package gets there (from the daemon, with the node's token), that it is the one whose
SHA-256 stands in the text, and with which Python it runs. Never: knows a kind of machine, or runs what it has
not checked; whoever launches one runs this text with ``sh`` as the machine's program, as its first command,
or over a connection. Follows: run twice, it is one agent; what it lacks is said in words on stderr, with exit
code 97, so that a provider can show it; what was cut off half-way is made anew beside it.
"""

from __future__ import annotations

import json
import shlex
from importlib import metadata

from sky.kit import agent_package
from sky.kit.agent_package import FILE_NAME
from sky.providers.base import LaunchOrder

FAILED = 97
"""The exit code of a machine that cannot become a node; its last line on stderr says why."""


def script(
    order: LaunchOrder,
    home: str,
    *,
    url: str | None = None,
    detached: bool = False,
    shared: str | None = None,
) -> str:
    """Text for ``sh``: be, or with ``detached`` start, the agent of ``order``.

    ``home`` is its folder on the machine, which may begin with ``$HOME/``. ``url``: where the machine reaches
    the daemon, if not at the order's address. ``shared``: a folder below ``home``, or a link there, in which
    the package may lie, and in which the nodes of a machine have one environment; without it, each has its
    own. The text holds the node's token. The first call reads the installer that it names, for a moment.
    """
    machine, installer = agent_package.installer_digest()
    told = {
        "SKY_AGENT_NODE": order.tag,
        "SKY_AGENT_URL": url or order.agent.url,
        "SKY_AGENT_TTL_SECONDS": str(order.ttl_seconds),
    }
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in told.items())
    rest, _, below = home.partition("/") if home.startswith("$HOME/") else ("", "", home)
    folder = f'"$HOME/"{shlex.quote(below)}' if rest else shlex.quote(home)
    begin = _DETACHED if detached else 'exec "$python" -m sky.agent'
    spec = shlex.quote(json.dumps(order.agent.spec))
    return _TEXT.format(
        exports=exports,
        folder=folder,
        token=shlex.quote(order.agent.token),
        spec=spec,
        file=FILE_NAME,
        package_sha256=agent_package.digest(),
        uv_machine=shlex.quote(machine),
        uv_sha256=shlex.quote(installer),
        uv=metadata.version("uv"),
        shared='"$home"' if shared is None else f'"$home"/{shlex.quote(shared)}',
        failed=FAILED,
        begin=begin,
    )


_DETACHED = """if [ -f agent.pid ] && kill -0 "$(cat agent.pid)" 2>/dev/null; then
    echo "begun before: $(cat agent.pid)"; exit 0
fi
setsid "$python" -m sky.agent >>agent.log 2>&1 </dev/null &
echo $! >agent.pid
echo "begun: $!\""""

_TEXT = """\
set -u
umask 077
{exports}
home={folder}
fail() {{ echo "$*" >&2; exit {failed}; }}
mkdir -p "$home" && cd "$home" || fail "the folder $home cannot be made"
home=$(pwd)
printf %s {token} >token.new && mv token.new token
printf %s {spec} >spec.json
export SKY_AGENT_HOME="$home" SKY_AGENT_TOKEN_FILE="$home/token" SKY_AGENT_SPEC="$home/spec.json"
fetch() {{
    if command -v curl >/dev/null 2>&1; then
        curl -q -fsS --retry 5 --retry-connrefused -m 600 -H "Authorization: Bearer $(cat token)" \\
            -H "X-Sky-Node: $SKY_AGENT_NODE" -o "$2" "$SKY_AGENT_URL$1"
    elif command -v wget >/dev/null 2>&1; then
        wget -q -T 600 --header "Authorization: Bearer $(cat token)" --header "X-Sky-Node: $SKY_AGENT_NODE" \\
            -O "$2" "$SKY_AGENT_URL$1"
    elif command -v python3 >/dev/null 2>&1; then
        python3 -c 'import os, sys, urllib.request as u
r = u.Request(sys.argv[1], headers={{"Authorization": "Bearer " + open("token").read(),
    "X-Sky-Node": os.environ["SKY_AGENT_NODE"]}})
open(sys.argv[2], "wb").write(u.urlopen(r, timeout=600).read())' "$SKY_AGENT_URL$1" "$2"
    else
        echo "neither curl, wget nor python3 is there" >&2; return 1
    fi
}}
summing='import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'
sum_of() {{
    if command -v sha256sum >/dev/null 2>&1; then sha256sum <"$1"
    elif command -v shasum >/dev/null 2>&1; then shasum -a 256 <"$1"
    elif command -v openssl >/dev/null 2>&1; then openssl dgst -sha256 -r <"$1"
    else python3 -c "$summing" <"$1"; fi
}}
summed=""
whole() {{ [ -f "$1" ] && summed=$(sum_of "$1" 2>/dev/null) && [ "${{summed%% *}}" = "$2" ]; }}
# Have at $2, unless it is there, what the daemon has at $1: $4, whose SHA-256 is $3.
have() {{
    whole "$2" "$3" && return
    new="$2.$$"
    if ! fetch "$1" "$new"; then
        rm -f "$new"
        fail "$4 cannot be fetched from $SKY_AGENT_URL: see that this machine reaches that address"
    fi
    if ! whole "$new" "$3"; then
        rm -f "$new"
        [ -n "$summed" ] || fail "neither sha256sum, shasum, openssl nor python3 is there to check $4 with"
        fail "$4, as it came from $SKY_AGENT_URL, is not what this node's daemon has: its SHA-256 is" \
            "${{summed%% *}}, not $3. See that nothing stands between, and that all daemons of one database" \
            "are of one release"
    fi
    mv "$new" "$2" || fail "$2 cannot be written"
}}
new_enough() {{ "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }}
shared={shared}
python="$shared/venv/bin/python"
if ! "$python" -c 'import sky.agent' >/dev/null 2>&1; then
    package="$shared/{file}"
    have /agent/v1/package/{file} "$package" {package_sha256} "the agent's package"
    uv=$(command -v uv || true)
    found=""
    for one in "${{SKY_PYTHON:-python3}}" python3.13 python3.12 python3.11; do
        if command -v "$one" >/dev/null 2>&1 && new_enough "$one"; then found=$(command -v "$one"); break; fi
    done
    if [ -z "$uv" ] && {{ [ -z "$found" ] || ! "$found" -c 'import ensurepip, venv' >/dev/null 2>&1; }}; then
        machine="$(uname -s)-$(uname -m)"
        [ "$machine" = {uv_machine} ] || fail "this machine needs uv, or Python 3.11 or newer with venv"
        uv="$home/uv"
        have "/agent/v1/uv/$machine" "$uv" {uv_sha256} "uv, which this machine lacks,"
        chmod 700 "$uv"
    fi
    # Made beside it and moved there when it is whole: others may be about to do the same.
    fresh="$shared/venv.$$"
    index="see what it says above, and that this machine reaches a package index"
    give_up() {{ rm -rf "$fresh"; fail "$*"; }}
    if [ -n "$uv" ]; then
        # uv brings certificates of its own; where the machine has some, those count.
        [ ! -s /etc/ssl/certs/ca-certificates.crt ] || export UV_SYSTEM_CERTS="${{UV_SYSTEM_CERTS:-1}}"
        "$uv" venv -q --clear --python "${{found:-3.11}}" "$fresh" >&2 \
            && "$uv" pip install -q --python "$fresh/bin/python" "$package" >&2 \
            || give_up "the agent cannot be installed with uv: $index"
        # Images may name packages: what installs them stays beside the agent where nothing else has it.
        [ "$uv" != "$home/uv" ] || cp "$uv" "$fresh/bin/uv"
    else
        # With uv, so that images may name packages.
        "$found" -m venv --clear "$fresh" >&2 \
            && "$fresh/bin/python" -m pip install -q --disable-pip-version-check "$package" uv=={uv} >&2 \
            || give_up "the agent cannot be installed with pip: $index"
    fi
    if "$python" -c 'import sky.agent' >/dev/null 2>&1; then
        rm -rf "$fresh"
    else
        rm -rf "$shared/venv"
        mv "$fresh" "$shared/venv"
    fi
    # What a start that was cut off has left, where nobody else is about to use it.
    [ "$shared" != "$home" ] || rm -rf "$home"/venv.[0-9]* "$home"/*.whl.[0-9]* "$home"/uv.[0-9]*
fi
{begin}
"""
