"""Documents of legal size that would become many patterns."""

import pytest

from storage.errors import Forbidden
from tests.auth.policies.builders import compiled, document, faults, statement

MANY = tuple(f"group-{number:04}" for number in range(1_000))


@pytest.mark.parametrize(
    "name", ["store:groups", "STORE:Roles", " store:groups ", "store:roles, 'x'"]
)
def test_a_variable_of_many_values_may_be_named_in_few_places(name: str) -> None:
    resources = [f"arn:{number}:*${{{name}}}" for number in range(21)]
    assert faults(document(statement(Resource=resources[:20]))) == {}
    assert set(faults(document(statement(Resource=resources)))) == {""}
    condition = {"StringLike": {"store:Source": resources[10:]}}
    mixed = statement(Resource=resources[:10], Condition=condition)
    assert set(faults(document(mixed))) == {""}


def test_whose_policies_become_too_many_patterns_is_not_judged() -> None:
    resources = [f"arn:{number}:*${{store:groups}}" for number in range(20)]
    bomb = document(statement(Resource=resources))
    assert compiled(bomb, variables={"store:groups": MANY[:10]}).might("a:b")
    with pytest.raises(Forbidden, match="50000 patterns"):
        compiled(*[bomb] * 50, variables={"store:groups": MANY})
