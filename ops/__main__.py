"""Entry point of `python -m ops`, the operator's commands."""

from ops.cli import cli

if __name__ == "__main__":
    cli(prog_name="python -m ops")
