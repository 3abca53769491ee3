"""How often a process looks for garbage in circles."""

import gc

THRESHOLDS = (50_000, 20, 50)


def pause() -> None:
    """Collect no garbage until `relax`: imports make many objects and little garbage."""
    gc.disable()


def relax() -> None:
    """Look seldom, and never at what is there now; to be called once a process is set up.

    A manifest of 20,000 entries makes hundreds of thousands of objects without one circle: by
    default the collector would walk over them, and over all modules, a hundred times.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
