"""A network of one job: a bridge in a network namespace, one more namespace for each host."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
from dataclasses import dataclass

from airflow_smd.sandbox.jobs import linux

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
INTERFACE = "eth0"
"""What SageMaker's resourceconfig.json names."""


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """A host's network namespace, kept alive by the open file, and the endpoint's socket inside it."""

    namespace: int
    listener: socket.socket


def connect(addresses: list[str], endpoint_port: int) -> list[HostNetwork]:
    """Put this process into a namespace with a bridge and make one namespace per address.

    No namespace has a way out: a host reaches the other hosts of its job, and the sandbox at
    127.0.0.1:`endpoint_port` through a listening socket that was opened inside.
    """
    linux.unshare(linux.CLONE_NEWNET)
    bridge = os.open("/proc/self/ns/net", os.O_RDONLY)
    networks = []
    for _ in addresses:
        linux.unshare(linux.CLONE_NEWNET)
        _bring_up_loopback()
        listener = socket.create_server(("127.0.0.1", endpoint_port), backlog=128)
        networks.append(HostNetwork(os.open("/proc/self/ns/net", os.O_RDONLY), listener))
    linux.enter_namespace(bridge, linux.CLONE_NEWNET)
    commands = ["link add br0 type bridge forward_delay 0", "link set br0 up"]
    for number, network in enumerate(networks):
        path = f"/proc/{os.getpid()}/fd/{network.namespace}"
        commands += [
            f"link add host{number} type veth peer name {INTERFACE} netns {path}",
            f"link set host{number} master br0 up",
        ]
    _ip(commands)
    for address, network in zip(addresses, networks, strict=True):
        linux.enter_namespace(network.namespace, linux.CLONE_NEWNET)
        _ip([f"addr add {address}/16 dev {INTERFACE}", f"link set {INTERFACE} up"])
    linux.enter_namespace(bridge, linux.CLONE_NEWNET)
    os.close(bridge)
    return networks


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack_from("h", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request), 16)[0]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _ip(commands: list[str]) -> None:
    batch = "\n".join(commands) + "\n"
    result = subprocess.run(["ip", "-batch", "-"], input=batch, text=True, capture_output=True, check=False)
    if result.returncode != 0:
        raise OSError(f"ip -batch failed: {result.stderr.strip()} in {commands}")
