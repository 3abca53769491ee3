"""How fast a receiver is served, pure: a window that opens with success and closes with failure."""

from dataclasses import replace

from storage.catalog.endpoints import Endpoint

FIRST_WINDOW, WIDEST = 4, 32
"""Requests in flight to a new receiver, and to one receiver at the most."""
PATIENCE = 5
"""Failures in a row after which one probe at a time is sent …"""
BEGIN_S = 0.2
"""How long attempts may begin after a look found their subscription active."""
PROBE_S, PROBE_CAP_S = 0.5, 10.0
"""… after a pause that doubles with every further failure, between these bounds."""


def probing(endpoint: Endpoint) -> bool:
    """Whether the receiver failed so often that it is only probed."""
    return endpoint.failures >= PATIENCE


def suspect(endpoint: Endpoint) -> bool:
    """Whether it may well hang: it is new, or failed repeatedly, or is only probed."""
    return endpoint.width <= FIRST_WINDOW


def allowed(endpoint: Endpoint) -> int:
    """Requests that may be in flight to it."""
    return 1 if probing(endpoint) else int(endpoint.width)


def succeeded(endpoint: Endpoint) -> Endpoint:
    """One more in flight for each success: the window doubles as it is once passed through."""
    width = min(float(WIDEST), endpoint.width + 1)
    return replace(endpoint, failures=0, width=width, resume_us=0)


def failed(endpoint: Endpoint, *, now_us: int) -> Endpoint:
    """Half as many in flight, and after repeated failures none for a while."""
    failures = endpoint.failures + 1
    slower = replace(endpoint, failures=failures, width=max(1.0, endpoint.width / 2))
    if not probing(slower):
        return slower
    pause_s = min(PROBE_CAP_S, PROBE_S * 2.0 ** min(failures - PATIENCE, 10))
    return replace(slower, resume_us=now_us + int(pause_s * 1e6))
