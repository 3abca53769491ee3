"""Credentials of S3 that reach below one prefix of a bucket: a role's, narrowed by a policy of one
session. What is allowed then is what both the role and that policy allow.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import boto3.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from storage.blobs.clients import Limits, PerProcess
from storage.blobs.s3_client import Server
from storage.blobs.urls import as_called, taken_apart
from storage.errors import Unavailable
from storage.protocols import Loan

_ALLOWED: Final = (
    "s3:PutObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
    # With which programs see whether what they sent is there.
    "s3:GetObject",
)
_DEFAULT_REGION = "us-east-1"


def policy(bucket: str, prefix: str, *, partition: str = "aws") -> dict[str, Any]:
    """What a session may do: objects below the prefix, their parts, nothing of the bucket itself.
    No object's rights or tags: those are actions of their own."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "OneArea",
                "Effect": "Allow",
                "Action": list(_ALLOWED),
                "Resource": f"arn:{partition}:s3:::{bucket}/{prefix}*",
            }
        ],
    }


def open_lender(url: str, limits: Limits, role: str) -> "StsLender":
    """Who lends the role of this ARN on an `s3://` bucket; nobody is asked yet."""
    name, options = taken_apart(url, "s3", frozenset(Server.__slots__))
    server = Server(**options)
    return StsLender(name, role, server, PerProcess(lambda: _sts(server, limits)))


@dataclass(frozen=True, slots=True)
class StsLender:
    """See Lender. Threads may share it, and forked children: each makes its own client."""

    bucket: str
    role: str
    server: Server
    connected: Callable[[], Any] = field(repr=False)

    def lend(self, prefix: str, *, name: str, expires_s: int) -> Loan:
        """See Lender; one call."""
        # arn:<partition>:iam::<account>:role/<name>; not all servers of one's own spell it so.
        partition = self.role.split(":")[1] if self.role.startswith("arn:aws") else "aws"
        allowed = policy(self.bucket, prefix, partition=partition)
        try:
            client = self.connected()
            reply = client.assume_role(
                RoleArn=self.role,
                RoleSessionName=name,
                DurationSeconds=expires_s,
                Policy=json.dumps(allowed, separators=(",", ":")),
            )
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "an error")
            raise Unavailable(f"STS gives no credentials for upload areas: {code}") from error
        except (BotoCoreError, ValueError) as error:
            raise Unavailable(f"STS cannot be reached: {type(error).__name__}") from error
        return self._loan(prefix, reply["Credentials"], client.meta.region_name)

    def _loan(self, prefix: str, given: Mapping[str, Any], region: str) -> Loan:
        near = self.server.public or self.server.endpoint
        words = {
            "bucket": self.bucket,
            "prefix": prefix,
            "region": region,
            "endpoint": as_called(near) if near else None,
            "access_key_id": given["AccessKeyId"],
            "secret_access_key": given["SecretAccessKey"],
            "session_token": given["SessionToken"],
        }
        return Loan("s3", words, given["Expiration"].timestamp())


def _sts(server: Server, limits: Limits) -> Any:
    """Amazon's STS of the bucket's region; a server of one's own answers for it itself."""
    session = boto3.session.Session(profile_name=server.profile)
    fallback = _DEFAULT_REGION if server.endpoint else None
    return session.client(
        "sts",
        endpoint_url=server.endpoint,
        region_name=server.region or session.region_name or fallback,
        config=Config(
            connect_timeout=limits.connect_s,
            read_timeout=limits.read_s,
            retries={"total_max_attempts": limits.attempts, "mode": "standard"},
            user_agent="consortium-store",
        ),
    )
