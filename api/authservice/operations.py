"""Every operation of the authorization service, in the order in which its definition shows them."""

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

OPERATIONS: tuple[Operation, ...] = (
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
