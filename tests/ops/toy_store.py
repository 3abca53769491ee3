"""A supervisor over toy services, to be started as a process of its own by tests."""

import os
import sys
from pathlib import Path

from config import Settings
from ops import home, ports, supervisor
from ops.procfile import parse
from ops.run import supervise

if __name__ == "__main__":
    folder, port, procfile = sys.argv[1:]
    try:
        supervise(
            Settings(home=Path(folder), port=int(port)),
            parse(procfile),
            environ=os.environ,
            say=lambda who, line: print(f"{who} | {line}", flush=True),  # noqa: T201
            prepare=(sys.executable, "-c", os.environ.get("TOY_PREPARE", "")),
            grace_s=float(os.environ.get("TOY_GRACE_S", supervisor.GRACE_S)),
        )
    except (home.Taken, ports.PortTaken, supervisor.StartFailed) as error:
        sys.exit(str(error))
