"""Every operation of the authorization service, in the order in which its definition shows them."""

from api.authservice import service
from api.operation import Operation

OPERATIONS: tuple[Operation, ...] = (*service.OPERATIONS,)
