"""Which network addresses tasks may call: those of the public internet, and what a setting allows besides."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")


def networks(texts: Sequence[str]) -> list[Network]:
    """The networks named: `10.1.0.0/16`, `127.0.0.1`, `fd00::/8`. Raises ValueError for anything else."""
    return [ip_network(text) for text in texts]


def is_allowed(address: str, allowed: Sequence[Network] = ()) -> bool:
    """Whether an address may be connected to. What is no address is not."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inside = _embedded(found)
    if any(found in network or (inside is not None and inside in network) for network in allowed):
        return True
    return _is_public(found) and (inside is None or _is_public(inside))


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address in _LOCAL_NAT64:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded(address: Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to, mapped, tunnelled or translated."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or address in _COMPATIBLE:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None
