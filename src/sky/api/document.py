"""The OpenAPI document, made from the operations.

Decides: how an operation's types, refusals and words become OpenAPI 3.1. Never: serves a request.
Follows: it cannot differ from what is validated, since both are read from the same declarations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from sky.api.operation import EVENTS, JSON, Bytes, Header, Operation
from sky.api.reading import KEY_CHARS_MAX, has_required
from sky.domain import errors as e
from sky.kit.version import VERSION
from sky.wire import v1
from sky.wire.error import Error

REFERENCE = "#/components/schemas/{name}"
BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
ALWAYS: tuple[type[e.SkyError], ...] = (e.Unauthorized, e.Forbidden, e.Internal, e.Busy)
ABOUT = """\
The control plane of Skyfleet: computes, the tasks that run on them, and everything that happens.

Every refusal has the same shape, `Error`: match on its `code`, show its `message`, try again only if it is
`retryable`. What a client may create takes an `Idempotency-Key`: the same request under the same key is
answered as the first time. What a client may change has an `ETag`, to be sent as `If-Match`. Lists are read
page by page with `limit` and `cursor`. HEAD is answered wherever GET is. Every answer has a `Request-Id`.
"""
TAGS = {
    "Computes": "What is wanted of machines, and what is there.",
    "Nodes": "The machines of a compute.",
    "Machines": "Commands and files on nodes.",
    "Connections": "Ports and shells of nodes.",
    "Tasks": "Calls, their attempts and their results.",
    "Functions": "Code that tasks call.",
    "Content": "Bytes by their hash: arguments and results.",
    "Providers": "Where machines come from, and what they cost.",
    "Events": "Everything that happens, as it happens.",
    "Loops": "What the daemon decided last, and why.",
    "Health": "Whether the daemon lives, serves, and reaches what it needs.",
}


def document_of(
    operations: Iterable[Operation],
    *,
    title: str = "Skyfleet control plane",
    about: str = ABOUT,
    tags: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The whole document, for these operations."""
    known = sorted(operations, key=lambda op: (op.path, op.method))
    types: list[Any] = []
    for op in known:
        types += [kind for kind in (op.answers, op.body, op.query) if kind is not None]
        types += list(op.path_types.values())
    types = [kind for kind in types if not isinstance(kind, Bytes)]
    schemas, components = msgspec.json.schema_components(
        [*types, Error, v1.FunctionCreate], ref_template=REFERENCE
    )
    _share_defaults(components)
    by_type = _Schemas(types, schemas)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for op in known:
        paths[op.path][op.method.lower()] = _operation(op, by_type, components)
    for item in paths.values():
        if "get" in item:
            item["head"] = _head(item["get"])
    queries = {op.query.__name__ for op in known if op.query is not None}
    shown = {name: _tidy(schema) for name, schema in components.items() if name not in queries}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": VERSION, "description": about},
        "tags": [{"name": name, "description": text} for name, text in (tags or TAGS).items()],
        "paths": {path: paths[path] for path in sorted(paths)},
        "components": {
            "schemas": {name: shown[name] for name in sorted(shown)},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": _BEARER}},
        },
        "security": [{}, {"token": []}],
    }


_BEARER = "The daemon's token. Processes of the daemon's own user on the same computer need none."


class _Schemas:
    """The schema of each type, found again by the type."""

    def __init__(self, types: Sequence[Any], schemas: Sequence[dict[str, Any]]) -> None:
        self._found = [(kind, schema) for kind, schema in zip(types, schemas, strict=False)]

    def of(self, kind: Any) -> dict[str, Any]:
        return _tidy(next(schema for known, schema in self._found if known is kind))


def _operation(op: Operation, schemas: _Schemas, components: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {
        "operationId": op.name,
        "tags": [op.tag],
        "summary": op.summary,
        "responses": _responses(op, schemas),
    }
    if op.description:
        out["description"] = op.description
    parameters = [*_parameters(op, schemas, components), *_headers(op)]
    if parameters:
        out["parameters"] = parameters
    if op.body is not None:
        body = {"content": {JSON: {"schema": schemas.of(op.body)}}, "required": has_required(op.body)}
        out["requestBody"] = body
    elif op.raw is not None:
        out["requestBody"] = _raw(op, op.raw)
    return {key: out[key] for key in _ORDER if key in out}


_ORDER = ("operationId", "tags", "summary", "description", "parameters", "requestBody", "responses")


def _raw(op: Operation, raw: Bytes) -> dict[str, Any]:
    content: dict[str, Any] = {media: {"schema": dict(_BINARY)} for media in raw.media}
    if op.name == "putFunction":
        content[JSON] = {"schema": {"$ref": REFERENCE.format(name="FunctionCreate")}}
    return {"description": raw.description, "content": content, "required": op.method == "PUT"}


_BINARY = {"type": "string", "format": "binary"}


# ── parameters ──────────────────────────────────────────────────────────────────────────────────


def _parameters(op: Operation, schemas: _Schemas, components: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, kind in op.path_types.items():
        schema = schemas.of(kind)
        if schema == {"type": "string"}:
            schema = {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}
        described = {"name": name, "in": "path", "required": True, "schema": schema}
        found.append({**described, "description": _PATHS.get(name, "")})
    if op.query is None:
        return found
    shape = cast("dict[str, Any]", components[op.query.__name__])
    required = set(shape.get("required", ()))
    for name, schema in shape["properties"].items():
        plain = _tidy(schema)
        if plain.get("default", 0) is None:
            del plain["default"]
        said = plain.pop("description", None) or _described(plain)
        parameter: dict[str, Any] = {"name": name, "in": "query", "required": name in required}
        if said:
            parameter["description"] = said
        parameter["schema"] = plain
        found.append(parameter)
    return found


_PATHS = {
    "compute_id": "Id or name of a compute.",
    "provider_id": "Id or name of a provider.",
    "node_id": "Id of a node.",
    "task_id": "Id of a task.",
    "sha256": "The SHA-256 of the content, in hexadecimal.",
    "number": "Number of a generation, from 1.",
    "ordinal": "Number of an execution, from 1.",
}


def _described(schema: dict[str, Any]) -> str | None:
    """The description inside of a schema that may also be null, taken out of it."""
    for branch in schema.get("anyOf", ()):
        if "description" in branch:
            return branch.pop("description")
    return None


def _headers(op: Operation) -> list[dict[str, Any]]:
    found: list[Header] = list(op.headers)
    if op.guarded:
        said = 'The ETag of the last read, such as `"7"`; or `*` for whatever it is now. Refused without.'
        found.append(Header("If-Match", said, required=True))
    if op.keyed:
        said = "A name for this request: sent again under it, it is answered as the first time. Kept 7 days."
        found.append(Header("Idempotency-Key", said))
    return [
        {
            "name": header.name,
            "in": "header",
            "required": header.required,
            "description": header.description,
            "schema": _HEADER_SCHEMAS.get(header.name, {"type": "string"}),
        }
        for header in found
    ]


_HEADER_SCHEMAS: dict[str, dict[str, Any]] = {
    "Idempotency-Key": {
        "type": "string",
        "minLength": 1,
        "maxLength": KEY_CHARS_MAX,
        "pattern": "^[!-~]([ -~]*[!-~])?$",
    },
    "If-Match": {"type": "string", "pattern": '^("[0-9]{1,18}"|\\*)$'},
    "Last-Event-ID": {"type": ["string", "null"], "pattern": "^[0-9]{0,18}$"},
    "X-Skyward-Function-Name": {"type": ["string", "null"], "pattern": "^[!-~]([ -~]{0,254}[!-~])?$"},
}


# ── responses ───────────────────────────────────────────────────────────────────────────────────


def _responses(op: Operation, schemas: _Schemas) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for status in (op.status, *op.also):
        said: dict[str, Any] = {"description": _GOOD.get(status, "Done.")}
        content = _content(op, status, schemas)
        if content:
            said["content"] = content
        if op.sets:
            said["headers"] = {
                h.name: {"description": h.description, "schema": {"type": "string"}} for h in op.sets
            }
        out[str(status)] = said
    refusals: dict[int, list[type[e.SkyError]]] = defaultdict(list)
    for error in dict.fromkeys((*_implied(op), *op.errors, *ALWAYS)):
        refusals[error.status].append(error)
    for status in sorted(refusals):
        out[str(status)] = _refusal(refusals[status])
    return out


_GOOD = {
    200: "Here it is.",
    201: "It is made.",
    202: "It is asked for, and goes on.",
    204: "Nothing to tell.",
}


def _content(op: Operation, status: int, schemas: _Schemas) -> dict[str, Any] | None:
    if status == 204:
        return None
    if isinstance(op.answers, Bytes):
        return {media: {"schema": dict(_BINARY)} for media in op.answers.media}
    if op.answers is None:
        return {JSON: {"schema": {"type": "null"}}} if status == 201 else None
    schema = schemas.of(op.answers)
    return {EVENTS: {"schema": schema}} if op.answers is v1.Event else {JSON: {"schema": schema}}


def _implied(op: Operation) -> list[type[e.SkyError]]:
    """What follows from what an operation reads."""
    found: list[type[e.SkyError]] = [e.InvalidRequest]
    if op.body is not None:
        found += [e.PayloadTooLarge, e.UnsupportedMediaType]
    if op.guarded:
        found.append(e.PreconditionRequired)
    if op.method not in {"GET", "HEAD"}:
        found.append(e.StorageFull)
    return found


def _refusal(errors: Sequence[type[e.SkyError]]) -> dict[str, Any]:
    said = [f"`{error.code}`: {_first_line(error)}" for error in errors]
    return {
        "description": " ".join(said),
        "content": {JSON: {"schema": {"$ref": REFERENCE.format(name="Error")}}},
        "x-error-codes": [error.code for error in errors],
    }


def _first_line(error: type[e.SkyError]) -> str:
    return (error.__doc__ or "").strip().partition("\n")[0]


def _head(get: dict[str, Any]) -> dict[str, Any]:
    """The same without a body."""
    responses = {
        status: {key: value for key, value in said.items() if key != "content" or status >= "400"}
        for status, said in get["responses"].items()
    }
    name = get["operationId"]
    parameters = {"parameters": get["parameters"]} if "parameters" in get else {}
    return {
        "operationId": f"{name}Head",
        "tags": get["tags"],
        "summary": f"{get['summary']}: headers only",
        **parameters,
        "responses": responses,
    }


# ── schemas ─────────────────────────────────────────────────────────────────────────────────────


def _share_defaults(components: dict[str, Any]) -> None:
    """Say the default of a field that is a shape at the shape, where every reader of a reference finds it."""
    for schema in list(components.values()):
        for field in schema.get("properties", {}).values():
            if "$ref" in field and isinstance(field.get("default"), dict):
                components[field["$ref"].rpartition("/")[2]]["default"] = field.pop("default")


def _tidy(schema: Any) -> Any:
    """A schema in the form that readers know best: enums with their type, bytes as such, no titles."""
    if isinstance(schema, list):
        return [_tidy(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    known = cast("dict[str, Any]", schema)
    out = {key: _tidy(value) for key, value in known.items() if key != "title" or not isinstance(value, str)}
    values = cast("list[Any] | None", out.get("enum"))
    if values is not None and "type" not in out and all(isinstance(v, str) for v in values):
        out = {"type": "string", **out}
    if out.get("default", 0) is None and any("$ref" in branch for branch in out.get("anyOf", ())):
        del out["default"]
    if out.get("contentEncoding") == "base64":
        out["pattern"] = BASE64
    if isinstance(out.get("const"), str) and "type" not in out:
        out = {"type": "string", **out}
    if isinstance(out.get("description"), str):
        out["description"] = out["description"].replace("``", "`")
    return out
