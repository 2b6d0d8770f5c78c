"""Addresses of Ray clusters: which one is meant, and whether anything answers there.

Ray itself waits for minutes at an address where nothing listens; a cluster is asked here first.
"""

import os
import socket
from dataclasses import dataclass

from cluster_sim.config import ExecutorConfig
from cluster_sim.errors import UserError

RAY_ADDRESS = "RAY_ADDRESS"
LOCAL = "local"  # Ray's word: start a cluster of one's own
AUTO = "auto"  # Ray's word: the cluster that `ray start` started on this machine
ANSWER_S = 3.0  # a cluster that takes longer to answer is taken for dead
_SETTINGS = 4  # type of the frame that every HTTP/2 server, so every gRPC one, sends first (RFC 9113, 3.4)
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0])


@dataclass(frozen=True)
class Address:
    """An address, and the setting that holds it."""

    text: str
    where: str


def given_address(config: ExecutorConfig) -> Address | None:
    """executor.address, else RAY_ADDRESS; None: neither is set, or a cluster of one's own is asked for."""
    for text, where in ((config.address, "executor.address"), (os.environ.get(RAY_ADDRESS), RAY_ADDRESS)):
        if text:
            return None if text == LOCAL else Address(text, where)
    return None


def check_answers(address: Address) -> None:
    """Ask the server at HOST:PORT for its first words of gRPC.

    Raises:
        UserError: not HOST:PORT, or nothing answers there as Ray does, within ANSWER_S.
    """
    host, _, port = address.text.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        rule = "the address of a Ray cluster must be HOST:PORT, auto or local"
        raise UserError(rule, repr(address.text), address.where, "Give the address that `ray start` printed.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S) as connection:
            connection.settimeout(ANSWER_S)
            connection.sendall(_HELLO)
            first = connection.recv(9, socket.MSG_WAITALL)  # a frame's header; its fourth byte is the type
    except (OSError, OverflowError) as error:
        raise not_there(address, str(error)) from error
    if len(first) < 4 or first[3] != _SETTINGS:  # noqa: PLR2004  the header up to the type
        raise not_there(address, "something else listens there")


def not_there(address: Address, reason: str) -> UserError:
    """The error for an address where no Ray cluster can be joined."""
    rule = "a Ray cluster must answer at its address"
    remedy = f"Start it (`ray start --head`), correct the address, or unset {address.where} for a local Ray."
    return UserError(rule, f"{reason} at {address.text}", address.where, remedy)
