"""Which network addresses a source may be read from.

Whoever writes a MemorySource makes this process connect somewhere. So a name is resolved here, every address is
checked, and the checked address is the one that is connected to: a name that resolves differently a moment later gains
nothing. Cloud metadata and what listens on this host alone are never a system of record.
"""

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from freshgate_service.errors import SourceRefused, SourceUnavailable

Address = IPv4Address | IPv6Address

_METADATA = frozenset(map(ip_address, ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16")))
"""Metadata services of AWS, Google, Alibaba and Azure that are not at a link-local address."""

_NAT64 = IPv6Network("64:ff9b::/96")


async def resolve(host: str, port: int, *, allow_loopback: bool) -> list[str]:
    """The addresses of a host that may be connected to, in the resolver's order; never empty."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise SourceUnavailable("the name of its host cannot be resolved") from None
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    allowed = [text for text in addresses if permitted(ip_address(text), allow_loopback=allow_loopback)]
    if not allowed:
        raise SourceRefused("its host has an address that no source may have (loopback, link-local or metadata)")
    return allowed


def permitted(address: Address, *, allow_loopback: bool) -> bool:
    address = _unwrapped(address)
    if address.is_loopback or address.is_unspecified:
        return allow_loopback
    return not (address.is_link_local or address.is_multicast or address in _METADATA)


def _unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address
