"""Every operation of the authorization service, in the order in which its definition shows them."""

from api.authservice import authorize, login, openid, service
from api.operation import Operation

OPERATIONS: tuple[Operation, ...] = (
    *openid.OPERATIONS,
    *authorize.OPERATIONS,
    login.get_login,
    login.get_logout,
    *service.OPERATIONS,
)
