"""The promises of the steps, and that the broker is told of them."""

import subprocess
import sys
from random import Random

from pipelines.flow import Step
from storage.stores import Stores
from workers import actors
from workers.broker import MemoryBroker
from workers.chains import Chains
from workers.claims import Working
from workers.queues import PREFETCH, PROMISES


def test_what_somebody_waits_for_goes_before_what_shares_its_process(stores: Stores) -> None:
    broker = MemoryBroker()
    working = Working(stores, Chains(broker), actors.STEPS, 5, Random(0))
    actors.declare(broker, working)
    turns = {step: broker.get_actor(str(step)).priority for step in PROMISES}
    assert turns[Step.MATCH] < turns[Step.INDEX]
    assert turns[Step.VERIFY] < turns[Step.SYNC]


def test_a_worker_process_takes_as_many_messages_as_was_measured_to_be_best() -> None:
    # In a process of its own: the library looks once, when it is imported for the first time.
    asked = "import workers.__main__, dramatiq.worker as w; print(w.QUEUE_PREFETCH)"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert int(told.stdout) == PREFETCH
