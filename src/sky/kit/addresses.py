"""Which internet addresses are public, which mean this computer, and what a host is as a client reads it.

Decides: what counts as public, itself and whatever another address wraps. Never: looks a name up.
Follows: whoever sends to an address that a stranger named asks here; where the registry of the standard
library is silent or older than a reservation, the networks are listed.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata

NAT64 = ipaddress.ip_network("64:ff9b::/96")
RESERVED = tuple(
    ipaddress.ip_network(network) for network in ("192.0.0.0/24", "::/96", "64:ff9b:1::/48", "fec0::/10")
)
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")


def is_public(address: str) -> bool:
    """Whether an address is one that the whole internet sees, itself and what is wrapped in it."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if not ip.is_global or ip.is_multicast or any(ip in network for network in RESERVED):
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return True
    inner = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    if ip in NAT64:
        inner.append(ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF))
    return all(is_public(str(one)) for one in inner if one is not None)


def is_loopback(host: str) -> bool:
    """Whether a host's name or address means the computer that says it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def as_read(host: str) -> str:
    """A host in the letters that clients make of it: other scripts' digits and dots become plain ones."""
    return unicodedata.normalize("NFKC", host).replace("\u3002", ".").lower().rstrip(".")


def ends_in_number(host: str) -> bool:
    """Whether some clients take a host for an IPv4 address in another spelling, such as ``127.1``."""
    return _NUMBER.fullmatch(host.rpartition(".")[2]) is not None
