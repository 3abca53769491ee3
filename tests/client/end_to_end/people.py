"""A person with the installed command: a home of their own, a folder to work in, what they type."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

STORE = Path(sys.executable).with_name("store")
"""The command as it was installed."""
PATIENCE_S = 180.0


@dataclass(frozen=True)
class Person:
    """Who types; `url` is the store they talk to."""

    home: Path
    folder: Path
    url: str
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        """Nothing of the machine's own settings but where programs are."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "STORE_CLIENT_HOME": str(self.home / "client"),
            "STORE_CLIENT_URL": self.url,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            "COLUMNS": "120",
            **self.more,
        }

    def starts(self, *words: str) -> "subprocess.Popen[str]":
        """A command that goes on while others do."""
        return subprocess.Popen(
            [STORE, *words],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def types(self, *words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        """A command to its end, whatever that is."""
        return subprocess.run(
            [STORE, *words],
            cwd=self.folder,
            env=self.environ,
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def gets(self, *words: str, given: str = "") -> Any:
        """The JSON that a command prints that goes well."""
        done = self.types(*words, "--json", given=given)
        assert done.returncode == 0, f"store {' '.join(words)}: {done.returncode}\n{done.stderr}"
        return json.loads(done.stdout)


def a_person(folder: Path, url: str, **more: str) -> Person:
    """Somebody who never used the command before."""
    (folder / "home").mkdir(parents=True)
    (folder / "work").mkdir()
    return Person(folder / "home", folder / "work", url, more)


def a_sample(folder: Path, *, files: int = 3, size: int = 200_000, seed: int = 0) -> Path:
    """A directory as a lab has it: metadata, and data in folders."""
    rng = Random(seed)
    (folder / "reads" / "lane 1").mkdir(parents=True)
    sample = {"organism": "Danio rerio", "donor": seed, "name": f"sample {seed}"}
    (folder / "sample.json").write_text(json.dumps(sample))
    (folder / "empty.txt").write_bytes(b"")
    for number in range(files):
        (folder / "reads" / "lane 1" / f"R{number}.fastq.gz").write_bytes(rng.randbytes(size))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder by their names in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
