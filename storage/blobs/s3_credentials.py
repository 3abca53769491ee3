"""Temporary S3 credentials for one prefix, from STS with a session policy."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import boto3.session
from botocore.exceptions import BotoCoreError, ClientError

from storage.blobs.clients import CloudLimits, PerProcess, canonical_endpoint, parse_bucket_url
from storage.blobs.s3_client import S3Server, make_client
from storage.errors import Unavailable
from storage.protocols import Credentials

_ALLOWED_ACTIONS: Final = (
    "s3:PutObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
    # With which programs see whether what they sent is there.
    "s3:GetObject",
)


def make_session_policy(bucket: str, prefix: str, *, partition: str = "aws") -> dict[str, Any]:
    """Return what a session may do: objects below the prefix and their parts.

    Not the bucket, nor ACLs and tags of objects: those are other actions.
    """
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "OneArea",
                "Effect": "Allow",
                "Action": list(_ALLOWED_ACTIONS),
                "Resource": f"arn:{partition}:s3:::{bucket}/{prefix}*",
            }
        ],
    }


def open_s3_issuer(url: str, limits: CloudLimits, role: str) -> "StsCredentialIssuer":
    """Return the issuer of this role's credentials on an `s3://` bucket; no request yet."""
    name, server = parse_bucket_url(url, "s3", S3Server)

    def make_sts_client() -> Any:
        """Make a client of Amazon's STS in the bucket's region; other servers have their own."""
        session = boto3.session.Session(profile_name=server.profile)
        return make_client("sts", session, server, limits)

    return StsCredentialIssuer(name, role, server, PerProcess(make_sts_client))


@dataclass(frozen=True, slots=True)
class StsCredentialIssuer:
    """See CredentialIssuer. Threads and forked children may share it."""

    bucket: str
    role: str
    server: S3Server
    make_client: Callable[[], Any] = field(repr=False)

    def issue_credentials(self, prefix: str, *, name: str, expires_s: int) -> Credentials:
        """See CredentialIssuer; one call."""
        # arn:<partition>:iam::<account>:role/<name>; not all servers of one's own spell it so.
        partition = self.role.split(":")[1] if self.role.startswith("arn:aws") else "aws"
        allowed = make_session_policy(self.bucket, prefix, partition=partition)
        try:
            client = self.make_client()
            reply = client.assume_role(
                RoleArn=self.role,
                RoleSessionName=name,
                DurationSeconds=expires_s,
                Policy=json.dumps(allowed, separators=(",", ":")),
            )
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "an error")
            raise Unavailable(f"STS issued no credentials for upload areas: {code}") from error
        except (BotoCoreError, ValueError) as error:
            raise Unavailable(f"STS cannot be reached: {type(error).__name__}") from error
        return self._make_credentials(prefix, reply["Credentials"], client.meta.region_name)

    def _make_credentials(self, prefix: str, given: Mapping[str, Any], region: str) -> Credentials:
        near = self.server.public or self.server.endpoint
        words = {
            "bucket": self.bucket,
            "prefix": prefix,
            "region": region,
            "endpoint": canonical_endpoint(near) if near else None,
            "access_key_id": given["AccessKeyId"],
            "secret_access_key": given["SecretAccessKey"],
            "session_token": given["SessionToken"],
        }
        return Credentials("s3", words, given["Expiration"].timestamp())
