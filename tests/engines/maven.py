"""Install programs in Java: the jars of an artifact and of what it requires."""

import shutil
import subprocess
from pathlib import Path

from tests.engines.packages import alone

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>store</groupId><artifactId>engine</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""


def copy_jars(group: str, artifact: str, version: str, folder: Path) -> None:
    """Get an artifact and what it requires into `folder`, unless they are there: all or none."""
    with alone(folder.parent, folder.name):
        if folder.is_dir():
            return
        fresh = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        pom = fresh / "pom.xml"
        pom.write_text(
            POM.format(group=group, artifact=artifact, version=version), encoding="utf-8"
        )
        goal = "dependency:copy-dependencies"
        options = (f"-DoutputDirectory={fresh.absolute()}", "-DincludeScope=runtime")
        subprocess.run(["mvn", "-q", "-B", "-f", pom, *options, goal], check=True)
        # The folder gets its name when everything is in it.
        fresh.rename(folder)
