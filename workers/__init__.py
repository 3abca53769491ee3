"""Workers: actors, claims, deliveries and the scheduler."""

import os

from workers.queues import PREFETCHED_MESSAGES, RESTART_MS

# dramatiq reads these once, on its first import, which comes later.
os.environ.setdefault("dramatiq_queue_prefetch", str(PREFETCHED_MESSAGES))
os.environ.setdefault("dramatiq_restart_delay", str(RESTART_MS))
