"""Hosts as network namespaces, joined by a switch that delays, loses and withholds frames.

The switch is a process of this project, since not every kernel has netem: each host has a TAP
device, and the switch carries Ethernet frames between them. It needs root, on Linux.
"""

import fcntl
import heapq
import multiprocessing
import os
import selectors
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from random import Random

SUBNET = "10.77.0"
HERE = "here"
"""The name of this machine's own namespace on the switch."""
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_FRAME = 65_536
_BROADCAST = 1
"""Bit of the first byte of addresses that are for all."""


@dataclass(frozen=True)
class LinkState:
    """Delay of each frame in seconds, share of lost ones, and pairs of hosts that are cut."""

    delay_s: float = 0.0
    loss: float = 0.0
    cut: frozenset[frozenset[str]] = frozenset()


@dataclass
class Network:
    """Hosts by their names, each with an address of its own."""

    prefix: str
    numbers: Mapping[str, int]
    _control: Connection
    _cut: set[frozenset[str]] = field(default_factory=set)
    _delay_s: float = 0.0
    _loss: float = 0.0

    def address(self, host: str) -> str:
        """The IP address of a host."""
        return f"{SUBNET}.{self.numbers[host]}"

    def command(self, host: str, words: Sequence[str]) -> list[str]:
        """A command line that runs a command on a host."""
        return [*_inside(self.prefix, host), *words]

    def impair(self, *, delay_s: float, loss: float) -> None:
        """Delay each frame, and lose a share of them, from now on."""
        self._delay_s, self._loss = delay_s, loss
        self._send()

    def cut(self, host: str, others: Sequence[str]) -> None:
        """Carry nothing between a host and others."""
        self._cut |= {frozenset({host, other}) for other in others}
        self._send()

    def heal(self, host: str, others: Sequence[str]) -> None:
        """Carry frames between them again."""
        self._cut -= {frozenset({host, other}) for other in others}
        self._send()

    def _send(self) -> None:
        self._control.send(LinkState(self._delay_s, self._loss, frozenset(self._cut)))


@contextmanager
def create_network(hosts: Sequence[str], seed: int) -> Iterator[Network]:
    """Make the namespaces and the switch; remove them with the block."""
    prefix = f"store-{os.getpid()}-"
    numbers = {name: number for number, name in enumerate((HERE, *hosts), 1)}
    taps: dict[str, int] = {}
    made: list[str] = []
    switch = None
    try:
        for name, number in numbers.items():
            if name != HERE:
                _run("ip", "netns", "add", prefix + name)
                made.append(prefix + name)
            taps[name] = _open_tap(prefix, name, number)
        control, far = multiprocessing.Pipe()
        forked = multiprocessing.get_context("fork")
        switch = forked.Process(target=_Switch(taps, numbers, seed).carry, args=(far,), daemon=True)
        switch.start()
        yield Network(prefix, numbers, control)
    finally:
        if switch is not None:
            switch.kill()
            switch.join()
        for tap in taps.values():
            os.close(tap)
        for name in made:
            _run("ip", "netns", "del", name)


def _open_tap(prefix: str, name: str, number: int) -> int:
    """Make the device of a host and bring it up; return its file descriptor."""
    device = f"st{os.getpid()}-{number}"
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH", device.encode(), _IFF_TAP | _IFF_NO_PI))
    if name != HERE:
        _run("ip", "link", "set", device, "netns", prefix + name)
        _run(*_inside(prefix, name), "ip", "link", "set", "lo", "up")
    inside = _inside(prefix, name)
    _run(*inside, "ip", "link", "set", device, "address", _mac(number).hex(":"), "up")
    _run(*inside, "ip", "addr", "add", f"{SUBNET}.{number}/24", "dev", device)
    return tap


def _inside(prefix: str, host: str) -> list[str]:
    return [] if host == HERE else ["ip", "netns", "exec", prefix + host]


def _mac(number: int) -> bytes:
    return bytes((0x02, 0, 0, 0, 0, number))


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


class _Switch:
    """Carries frames between the devices until it is killed."""

    def __init__(self, taps: Mapping[str, int], numbers: Mapping[str, int], seed: int) -> None:
        self._taps, self._rng, self._order = taps, Random(seed), count()
        self._owners = {_mac(number): name for name, number in numbers.items()}
        self._state = LinkState()
        self._waiting: list[tuple[float, int, int, bytes]] = []

    def carry(self, control: Connection) -> None:
        """Carry frames; `control` sends each new state of the links."""
        selector = selectors.DefaultSelector()
        for name, tap in self._taps.items():
            selector.register(tap, selectors.EVENT_READ, name)
        selector.register(control, selectors.EVENT_READ)
        while True:
            left = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
            for key, _ in selector.select(left):
                if key.data is None:
                    self._state = control.recv()
                else:
                    self._take(key.data, os.read(key.fd, _FRAME))
            self._deliver()

    def _take(self, sender: str, frame: bytes) -> None:
        """Put a frame on its way, unless it is lost."""
        named = self._owners.get(frame[:6])
        targets = self._taps if frame[0] & _BROADCAST else [named] if named is not None else []
        for target in targets:
            is_cut = frozenset({sender, target}) in self._state.cut
            if target != sender and not is_cut and self._rng.random() >= self._state.loss:
                due = time.monotonic() + self._state.delay_s
                heapq.heappush(self._waiting, (due, next(self._order), self._taps[target], frame))

    def _deliver(self) -> None:
        """Hand out the frames that are due."""
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, tap, frame = heapq.heappop(self._waiting)
            # A full queue loses frames, as a switch does.
            with suppress(OSError):
                os.write(tap, frame)
