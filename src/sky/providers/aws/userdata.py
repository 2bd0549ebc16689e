"""What a new machine is told to do: at every start, become the node that its user data names at that time.

Decides: the text that cloud-init runs at the first start. Never: needs anything of the image but systemd,
curl and a shell. Follows: a machine that was stopped and is started for another node reads its user data
anew; one whose agent has ended, or cannot be installed, shuts itself down, and by that costs nothing more.
"""

from __future__ import annotations

import gzip
import shlex

from sky.providers.base import LaunchOrder, Refused
from sky.providers.bootstrap import script

BYTES_MAX = 16_384
"""As much as EC2 takes."""
HOME = "$HOME/skyfleet"
METADATA = "http://169.254.169.254"
"""Where every instance asks about itself."""


def user_data(order: LaunchOrder, url: str | None) -> bytes:
    """The user data of the machine of ``order``; packed where it is long. Raises Refused."""
    disk = "" if order.disk is None else _DISK.format(name=shlex.quote(order.disk))
    notice = _SPOT if order.market == "spot" else ""
    node = script(order, f"{HOME}/nodes/{order.tag}", url=url)
    text = _TEXT.format(
        boot=_BOOT, unit=_UNIT, tag=shlex.quote(order.tag), disk=notice + disk, node=node
    ).encode()
    if len(text) > BYTES_MAX:
        text = gzip.compress(text, mtime=0)
    if len(text) > BYTES_MAX:
        msg = (
            f"what the machine is told has {len(text)} bytes, and EC2 takes {BYTES_MAX}: name fewer packages"
        )
        raise Refused(msg, "capability_mismatch", field="spec.image")
    return text


_SPOT = f"export SKY_AGENT_SPOT_NOTICE={METADATA}\n"
_DISK = """export SKY_AGENT_DISK="$base/disks/"{name}
mkdir -p "$SKY_AGENT_DISK"
"""

_BOOT = """\
cd "${HOME:-/root}/skyfleet" || exit 1
at=http://169.254.169.254/latest
ask() { curl -q -fsS -m 10 --retry 12 --retry-delay 5 --retry-connrefused "$@"; }
key=$(ask -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$at/api/token") \\
    && ask -H "X-aws-ec2-metadata-token: $key" -o told.new "$at/user-data" && mv told.new told
if gzip -t told 2>/dev/null; then gzip -dc <told >now; else cp told now; fi
tries=0
while [ "$tries" -lt 5 ]; do
    sh now node && break
    tries=$((tries + 1))
    echo "skyfleet: the node has failed, time $tries of 5" >&2
    sleep $((tries * 10))
done
echo "skyfleet: the node has ended, and so does this machine" >&2
shutdown -h now"""

_UNIT = """\
[Unit]
Description=Node of a Skyfleet daemon
Wants=network-online.target
After=network-online.target
[Service]
Environment=HOME=$HOME
ExecStart=/bin/sh $base/boot
StandardOutput=journal+console
StandardError=journal+console
KillMode=mixed
[Install]
WantedBy=multi-user.target"""

_TEXT = """\
#!/bin/sh
export HOME="${{HOME:-/root}}"
base="$HOME/skyfleet"
umask 077
mkdir -p "$base/nodes"
if [ "${{1:-}}" != node ]; then
    cat >"$base/boot" <<'END'
{boot}
END
    cat >/etc/systemd/system/skyfleet.service <<END
{unit}
END
    systemctl daemon-reload && systemctl enable skyfleet.service
    systemctl start --no-block skyfleet.service
    exit
fi
for old in "$base/nodes/"*; do
    [ "${{old##*/}}" = {tag} ] || rm -rf "$old"
done
{disk}{node}"""
