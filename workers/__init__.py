"""Queues and the clock: actors, claims, deliveries; decides alone what runs next."""

import os

from workers.queues import PREFETCH, RESTART_MS

# dramatiq reads these once, when any part of it is first imported: here, nothing has been yet.
os.environ.setdefault("dramatiq_queue_prefetch", str(PREFETCH))
os.environ.setdefault("dramatiq_restart_delay", str(RESTART_MS))
