"""Whether an id token is of this service, for us, and of this very login (Core, 3.1.3.7); a module
of its own, since what verifies signatures is heavy.
"""

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from store_client.errors import Refused
from store_client.login.granting import CLIENT_ID
from store_client.transport.limits import SMALL_ANSWER
from store_client.transport.session import Session

ALGORITHMS = ["RS256", "ES256"]


def check(session: Session, token: str, *, issuer: str, jwks_uri: str, nonce: str) -> None:
    """Refused unless it is: somebody may have put in a code of theirs."""
    try:
        keys = KeySet.import_key_set(
            session.ask("GET", jwks_uri, authorize=False, limit=SMALL_ANSWER).json()
        )
        said = jwt.decode(token, keys, algorithms=ALGORITHMS).claims
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise Refused("the id token of this login cannot be verified") from error
    audience = said.get("aud")
    ours = audience == CLIENT_ID or (isinstance(audience, list) and CLIENT_ID in audience)
    if said.get("iss") != issuer or not ours or said.get("nonce") != nonce:
        raise Refused("the id token is of another login")
