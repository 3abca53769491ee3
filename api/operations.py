"""Every operation of the storage API, in the order in which the definition shows them."""

from api import areas, bundles, checkout, files, search
from api.operation import Operation

OPERATIONS: tuple[Operation, ...] = (
    *bundles.OPERATIONS,
    *checkout.OPERATIONS,
    *files.OPERATIONS,
    *search.OPERATIONS,
    *areas.OPERATIONS,
)
