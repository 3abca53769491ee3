"""Which path leads to which operation, and what is said of a path that knows no such method."""

from collections.abc import Callable, Iterable, Sequence

from flask import Flask, Response, request
from werkzeug.exceptions import MethodNotAllowed

from api.operation import PATH_PARAMETER, Operation

METHODS = {"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"}


def register_operations(
    app: Flask,
    operations: Sequence[Operation],
    view_of: Callable[[Operation], Callable[..., Response]],
    prefix: str = "",
) -> None:
    """Give every operation its rules; `view_of` makes its Flask view."""
    # A rule for GET answers HEAD too, so operations that are HEAD themselves come first.
    for operation in sorted(operations, key=lambda one: one.method != "HEAD"):
        _route(app, operation, view_of(operation), prefix)
    _close(app, operations, prefix)


def _route(app: Flask, operation: Operation, view: Callable[..., Response], prefix: str) -> None:
    """One rule for each path; HEAD only where it is an operation of its own."""
    for path in (operation.path, *operation.aliases):
        rule = prefix + path.replace("{filename}", "<path:filename>")
        rule = rule.replace("{", "<").replace("}", ">")
        # What a path without parameters allows is said by `_refuse_others`.
        options = None if PATH_PARAMETER.search(path) else False
        # Flask takes no dot in the name of an end point.
        name = f"{operation.name} {path}".replace(".", "_")
        app.add_url_rule(
            rule, name, view, methods=[operation.method], provide_automatic_options=options
        )
        if operation.acts:
            without_head(app, name)


def without_head(app: Flask, endpoint: str) -> None:
    """Refuse HEAD where a GET does something: whoever looks at an address does not do it."""
    for rule in app.url_map.iter_rules(endpoint):
        (rule.methods or set()).discard("HEAD")


def _close(app: Flask, operations: Iterable[Operation], prefix: str) -> None:
    """Let nobody take the words of a path for a name: `DELETE /bundles/all` deletes no bundle."""
    methods: dict[str, set[str]] = {}
    for operation in operations:
        for path in (operation.path, *operation.aliases):
            methods.setdefault(path, set()).update(_methods(operation))
    for path, known in methods.items():
        if not PATH_PARAMETER.search(path):
            _refuse_others(app, prefix + path, known)


def _methods(operation: Operation) -> set[str]:
    headed = operation.method == "GET" and not operation.acts
    return {operation.method, "HEAD"} if headed else {operation.method}


def _refuse_others(app: Flask, path: str, known: set[str]) -> None:
    """Answer what a path does not know itself, before a path with parameters takes it."""
    allowed = sorted({*known, "OPTIONS"})

    def refuse() -> Response:
        if request.method == "OPTIONS":
            return Response(headers={"Allow": ", ".join(allowed)}, mimetype="text/plain")
        raise MethodNotAllowed(valid_methods=allowed)

    methods = [*METHODS - known, "OPTIONS"]
    app.add_url_rule(path, f"other methods {path}".replace(".", "_"), refuse, methods=methods)
