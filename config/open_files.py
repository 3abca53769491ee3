"""How many files and connections a process may have open."""

import resource


def allow(count: int) -> None:
    """Raise the limit of this process to that, as far as the operating system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != soft < count:
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
