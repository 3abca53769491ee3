"""What a user would copy buckets with instead: s5cmd, rclone, a plain loop; by their defaults."""

import os
import subprocess
from collections.abc import Callable, Mapping
from urllib.parse import quote

import httpx

from bench.real import engines

Copier = Callable[[str, str, str], None]
"""Copies what is under a prefix of a bucket of S3 into the bucket of a URL."""


def copiers(engine: str) -> Mapping[str, Copier]:
    """The tools that copy from S3 to this engine."""
    return {"s5cmd": _s5cmd, "rclone": _rclone} if engine == "s3" else {"rclone": _rclone}


def _s5cmd(source: str, prefix: str, target_url: str) -> None:
    where = f"s3://{engines.name_of(target_url)}/{prefix}"
    _run("s5cmd", "--log", "error", "cp", f"s3://{source}/{prefix}*", where)


def _rclone(source: str, prefix: str, target_url: str) -> None:
    remote = "aws" if target_url.startswith("s3:") else "gcp"
    where = f"{remote}:{engines.name_of(target_url)}/{prefix}"
    _run("rclone", "copy", f"aws:{source}/{prefix}", where)


def upload(folder: str, target_url: str) -> None:
    """Everything below a folder into a bucket of S3."""
    _run("s5cmd", "--log", "error", "cp", f"{folder}/", f"s3://{engines.name_of(target_url)}/")


def listed(bucket: str) -> int:
    """How many keys s5cmd finds in a bucket of S3."""
    return _run("s5cmd", "ls", f"s3://{bucket}/*").count("\n")


def _run(name: str, *arguments: str) -> str:
    command = [engines.tool(name), *arguments]
    done = subprocess.run(command, env=_environ(), capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}"
    return done.stdout


def _environ() -> dict[str, str]:
    s3 = {"TYPE": "s3", "PROVIDER": "Other", "ENV_AUTH": "true", "ENDPOINT": engines.endpoint("s3")}
    found = {f"RCLONE_CONFIG_AWS_{name}": value for name, value in s3.items()}
    found |= {"RCLONE_CONFIG": os.devnull, "S3_ENDPOINT_URL": engines.endpoint("s3")}
    if engines.has("gcs"):
        gcs = {
            "TYPE": "google cloud storage",
            "ANONYMOUS": "true",
            "BUCKET_POLICY_ONLY": "true",
            "ENDPOINT": f"{engines.endpoint('gcs')}/storage/v1/",
        }
        found |= {f"RCLONE_CONFIG_GCP_{name}": value for name, value in gcs.items()}
    return {**os.environ, **found}


def plain_loop(engine: str) -> Copier:
    """Object by object: get it, put it."""
    return _plain_to_s3 if engine == "s3" else _plain_to_gcs


def _plain_to_s3(source: str, prefix: str, target_url: str) -> None:
    client, target = engines.s3(), engines.name_of(target_url)
    for key in keys(source, prefix):
        body = client.get_object(Bucket=source, Key=key)["Body"].read()
        client.put_object(Bucket=target, Key=key, Body=body)


def _plain_to_gcs(source: str, prefix: str, target_url: str) -> None:
    client, target = engines.s3(), engines.gcs().bucket(engines.name_of(target_url))
    for key in keys(source, prefix):
        body = client.get_object(Bucket=source, Key=key)["Body"].read()
        target.blob(key).upload_from_string(body, "application/octet-stream")


def keys(bucket: str, prefix: str = "") -> list[str]:
    """All keys under a prefix, as anybody would list them."""
    pages = engines.s3().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [found["Key"] for page in pages for found in page.get("Contents", ())]


def remove(bucket_url: str) -> None:
    """A bucket with all that it holds."""
    name = engines.name_of(bucket_url)
    if bucket_url.startswith("s3:"):
        _run("s5cmd", "--log", "error", "rm", f"s3://{name}/*")
        engines.s3().delete_bucket(Bucket=name)
        return
    base = f"{engines.endpoint('gcs')}/storage/v1/b/{name}/o"
    with httpx.Client(trust_env=False) as http:
        while found := http.get(base).json().get("items"):
            for item in found:
                http.delete(f"{base}/{quote(item['name'], safe='')}").raise_for_status()
