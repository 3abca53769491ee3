"""What a store can be asked, from the definition that it serves; kept between commands.

Asking is known one floor below, calling one above.
"""

from store_client.definition.keeping import cached, clear
from store_client.definition.loading import load
from store_client.definition.operation import Definition, Operation, Parameter

__all__ = ["Definition", "Operation", "Parameter", "cached", "clear", "load"]
