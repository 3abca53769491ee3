"""Every operation of the authorization service, in the order in which its definition shows them."""

from dataclasses import replace

from api.authservice import service
from api.authservice.accounts import auditing, groups, policies, roles, users
from api.authservice.login import endpoints as login
from api.authservice.login import logout
from api.authservice.openid import authorize
from api.authservice.openid import endpoints as openid
from api.operation import Operation

_DECLARED: tuple[Operation, ...] = (
    *openid.OPERATIONS,
    *authorize.OPERATIONS,
    login.get_login,
    *logout.OPERATIONS,
    *users.OPERATIONS,
    *groups.OPERATIONS,
    *roles.OPERATIONS,
    *policies.OPERATIONS,
    *auditing.OPERATIONS,
    *service.OPERATIONS,
)

# Who may do what must read alike to everybody: of two conditions of one name a reader keeps one.
OPERATIONS = tuple(replace(one, once=True) for one in _DECLARED)
