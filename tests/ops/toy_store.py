"""A supervisor of toy services, run as its own process."""

import os
import sys
from pathlib import Path

from config import Settings
from ops import home, ports, supervisor
from ops.procfile import parse_procfile
from ops.supervisor import supervise

if __name__ == "__main__":
    folder, port, procfile = sys.argv[1:]
    try:
        supervise(
            Settings(home=Path(folder), port=int(port)),
            parse_procfile(procfile),
            environ=os.environ,
            say=lambda who, line: print(f"{who} | {line}", flush=True),  # noqa: T201
            prepare=(sys.executable, "-c", os.environ.get("TOY_PREPARE", "")),
            grace_s=float(os.environ.get("TOY_GRACE_S", supervisor.STOP_GRACE_S)),
        )
    except (home.HomeTaken, ports.PortTaken, supervisor.StartFailed) as error:
        sys.exit(str(error))
