"""The dispatcher process: `python -m workers.dispatch`. Delivers until it is told to stop."""

import asyncio
import logging
import os
import signal
import threading
from random import Random
from uuid import uuid4

import config
from config.logs import configure
from pipelines.notifying.subscriptions import SEALING
from storage.connecting import connect
from storage.sealing import Sealer, derive
from storage.stores import Stores
from workers.dispatch_ledger import Ledger
from workers.dispatch_loop import Dispatcher, Rules, Unseal, listen
from workers.dispatch_net import Sender

log = logging.getLogger(__name__)


def rules_of(settings: config.Settings) -> Rules:
    """The operator's numbers."""
    return Rules(
        delays_s=settings.delivery_delays_s,
        in_flight=settings.delivery_in_flight,
        retry_after_cap_s=settings.delivery_retry_after_cap_s,
    )


def sender_of(settings: config.Settings) -> Sender:
    """What sends, as patient as the operator wants it; to be built inside the event loop."""
    return Sender(
        timeout_s=settings.delivery_timeout_s,
        allow_private=settings.allow_private_callbacks,
        body_bytes=settings.delivery_body_bytes,
    )


async def dispatch(
    stores: Stores, settings: config.Settings, *, unseal: Unseal, stop: asyncio.Event
) -> None:
    """Deliver what the catalog holds until told to stop."""
    sender = sender_of(settings)
    rules = rules_of(settings)
    ledger = Ledger(
        stores.catalog,
        token=uuid4().hex,
        lease_s=rules.lease_s,
        disable_after_s=settings.disable_after_s,
    )
    dispatcher = Dispatcher(ledger, sender, rules=rules, unseal=unseal, rng=Random())
    loop = asyncio.get_running_loop()
    deaf = threading.Event()
    thread = threading.Thread(
        target=listen,
        args=(stores.notices, lambda: loop.call_soon_threadsafe(dispatcher.wake), deaf),
        name="notices of deliveries",
        daemon=True,
    )
    thread.start()
    try:
        await dispatcher.run(stop)
    finally:
        deaf.set()
        await asyncio.to_thread(thread.join)
        await sender.close()


async def _until_told(settings: config.Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    sealer = Sealer(derive(settings.secret_key.encode(), SEALING))
    stores = connect(settings)
    log.info("dispatch: up to %d requests in flight", settings.delivery_in_flight)
    await dispatch(stores, settings, unseal=sealer.open, stop=stop)


def main() -> None:
    """Deliver until told to stop."""
    settings = config.load(os.environ)
    configure(settings.log_level, "dispatch")
    asyncio.run(_until_told(settings))


if __name__ == "__main__":
    main()
