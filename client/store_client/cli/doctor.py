"""The command that looks at this client, the store and what is between."""

from dataclasses import asdict
from pathlib import Path

import click

from store_client.cli import registry
from store_client.cli.checkup import FAIL, OK, WARN, Finding, Patient, examined, exit_code
from store_client.cli.frame import Here, command
from store_client.cli.plain import line
from store_client.transport.policy import Policy
from store_client.transport.session import Session

HASTY = Policy(waits_s=(1,), unknown_retries=0, retry_after_cap_s=5, connect_s=5, read_s=20)
"""Who is ill does not want to wait long for being told so."""
COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}


@command(
    "doctor",
    help="Find out what is wrong here, and what to do about it. Exit code: 7 when the store does "
    "not answer, 4 when it does not take your login, 1 for anything else that fails, else 0.",
    section=registry.CLIENT,
)
def doctor(here: Here) -> None:
    """One line a finding, as it is made."""
    findings: list[Finding] = []
    with Session(here.config.url, policy=HASTY) as session:
        for finding in examined(Patient(here.config, session, folder=Path.cwd())):
            findings.append(finding)
            if not here.json:
                _say(finding)
    if here.json:
        here.show([_shown(finding) for finding in findings])
    click.get_current_context().exit(exit_code(findings))


def _say(finding: Finding) -> None:
    mark = click.style(f"{finding.verdict:4}", fg=COLOURS[finding.verdict])
    click.echo(f"{mark}  {finding.about:14} {line(finding.text)}")
    if finding.advice and finding.verdict != OK:
        click.echo(f"{'':20}→ {line(finding.advice)}")


def _shown(finding: Finding) -> dict[str, object]:
    return {name: value for name, value in asdict(finding).items() if name != "code"}
