"""Commands and options that scripts used before commands were grouped by noun."""

import click
import pytest

from store_client.cli import registry

pytestmark = pytest.mark.spec("CLI-154")
SHARED = "--env --help --json --log-level --output --profile --quiet --url -q"
FORMER = {
    "upload": "--allow-invalid-json --bundle-uuid --creator-uid --dry-run --indexed --jobs --no-progress --replica --src-dir --staging-bucket --timeout-seconds",
    "download": "--bundle-uuid --data-filter --download-dir --dry-run --es-query --jobs --metadata-filter --min-delay-seconds --no-data --no-metadata --no-progress --num-retries --replica --version -j",
    "download-manifest": "--download-dir --dry-run --jobs --layout --manifest --min-delay-seconds --no-data --no-metadata --no-progress --num-retries --replica -j",
    "download-collection": "--download-dir --dry-run --jobs --min-delay-seconds --no-progress --num-retries --replica --uuid --version -j",
    "select": "--new",
    "files": "--dry-run --file-extension --jobs --no-transfer-acceleration --sync --target-filename --uuid -s -t",
    "list": "--long --no-paginate --uuid -l",
    "areas": "",
    "forget": "",
    "creds": "",
    "status": "--uuid",
    "report": "--output-file-name --uuid",
    "login": "--access-token --default --remote --timeout-seconds",
    "logout": "",
    "whoami": "",
    "profiles": "--default",
    "doctor": "",
    "create-version": "",
    "clear-cache": "",
    "completion": "",
}


@pytest.mark.parametrize("name", FORMER)
def test_former_commands_keep_their_options(name: str) -> None:
    command = registry.load_command(name)
    assert command is not None
    options = {
        spelling
        for parameter in command.get_params(click.Context(command))
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    }
    assert set(f"{SHARED} {FORMER[name]}".split()) <= options
