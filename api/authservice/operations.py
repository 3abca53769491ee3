"""Every operation of the authorization service, in the order in which its definition shows them."""

from dataclasses import replace

from api.authservice import (
    auditing,
    authorize,
    groups,
    login,
    openid,
    policies,
    roles,
    service,
    users,
)
from api.operation import Operation

_DECLARED: tuple[Operation, ...] = (
    *openid.OPERATIONS,
    *authorize.OPERATIONS,
    login.get_login,
    login.get_logout,
    *users.OPERATIONS,
    *groups.OPERATIONS,
    *roles.OPERATIONS,
    *policies.OPERATIONS,
    *auditing.OPERATIONS,
    *service.OPERATIONS,
)

# Who may do what must read alike to everybody: of two conditions of one name a reader keeps one.
OPERATIONS = tuple(replace(one, once=True) for one in _DECLARED)
