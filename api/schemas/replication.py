"""Replication: what its reads answer."""

from marshmallow import fields, validate

from api.schemas.common import Shown
from api.schemas.fields import Flag, Version, in_replica
from storage.catalog.replication import LOOKED_AT
from storage.keys import KINDS

MOST = f"At most {LOOKED_AT}: so many are looked at."
STATES = ("present", "pending", "parked", "diverged")


def with_replication() -> Flag:
    """The parameter that asks for a version's state in every replica."""
    about = {"description": "Say how the version stands in each replica."}
    return Flag(load_default=False, metadata=about)


class Standing(Shown):
    """How a version stands in one replica."""

    state = fields.String(required=True, validate=validate.OneOf(STATES))
    at = Version(metadata={"description": "Since when; absent where that is not known."})
    reason = fields.String(metadata={"description": "Why it is not there yet."})


class Standings(Shown):
    """How a version stands in every replica."""

    aws = fields.Nested(Standing, required=True)
    gcp = fields.Nested(Standing, required=True)


class Lag(Shown):
    """From publication in the origin to being whole in the other replica, of late."""

    kind = fields.String(required=True, validate=validate.OneOf(KINDS))
    replica = in_replica(required=True, metadata={"description": "The replica that it came to."})
    versions = fields.Integer(required=True, metadata={"description": "How many came."})
    p50_s = fields.Float(metadata={"description": "Half of them were not slower."})
    p99_s = fields.Float(metadata={"description": "99 of 100 were not slower."})


class Backlog(Shown):
    """What waits, of one kind, for one step, in one replica."""

    kind = fields.String(required=True, metadata={"example": "bundle"})
    step = fields.String(required=True, metadata={"example": "sync"})
    replica = fields.String(required=True)
    parked = fields.Boolean(required=True, metadata={"description": "Put aside for a human."})
    rows = fields.Integer(required=True, metadata={"description": MOST})
    oldest_s = fields.Float(required=True, metadata={"description": "Age of the oldest."})


class Awaited(Shown):
    """Something that has not reached a replica."""

    kind = fields.String(required=True)
    name = fields.String(required=True, metadata={"example": "<uuid>.<version>"})
    step = fields.String(required=True)
    replica = fields.String(required=True)
    since = Version(required=True)
    age_s = fields.Float(required=True)
    attempts = fields.Integer(required=True)
    parked = fields.Boolean(required=True)
    reason = fields.String(metadata={"description": "Why the last attempt failed."})


class DivergedRecord(Shown):
    """A record of which the bucket holds another one: never overwritten."""

    kind = fields.String(required=True)
    name = fields.String(required=True)
    replica = fields.String(required=True)
    seen = Version(required=True)


class Unindexed(Shown):
    """A document that the search engine refused."""

    replica = fields.String(required=True)
    bundle = fields.String(required=True)
    reason = fields.String(required=True)


class Replication(Shown):
    """The answer of get_replication."""

    at = Version(required=True)
    window_s = fields.Integer(required=True, metadata={"description": "What lags are measured in."})
    lag = fields.List(fields.Nested(Lag), required=True)
    oldest = fields.List(fields.Nested(Awaited), required=True)
    backlog = fields.List(fields.Nested(Backlog), required=True)
    failures = fields.List(fields.Nested(Awaited), required=True)
    diverged = fields.List(fields.Nested(DivergedRecord), required=True)
    diverged_total = fields.Integer(required=True, metadata={"description": MOST})
    unindexed = fields.List(fields.Nested(Unindexed), required=True)
    unindexed_total = fields.Integer(required=True, metadata={"description": MOST})
