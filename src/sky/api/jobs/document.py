"""The OpenAPI document of paid jobs, made from the operations.

Decides: how an operation, its codes and its words become OpenAPI 3.1. Never: serves a request.
Follows: a code that an operation can answer with is in the document, and one that is not there cannot be
raised.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from sky.api.jobs.route import HEALTH_PATH, JSON, PREFIX, REALM, JobOperation
from sky.domain.job_errors import CODES
from sky.kit.version import VERSION
from sky.wire import jobs as wire

REFERENCE = "#/components/schemas/{name}"
ENVELOPE = {"$ref": REFERENCE.format(name="ErrorEnvelope")}
ABOUT = """\
Paid jobs: a command in a container, on a machine of a price list, paid from a balance that was filled before.

Every failure is an `ErrorEnvelope`: match on `error.code`, show `error.message`, look at `error.param` for
the field at fault. Money is a decimal string in USD; moments are whole seconds since 1970. A submit takes an
`Idempotency-Key`, which is remembered for 24 hours. Lists are read page by page with `limit` and `after`.
"""
TAGS = {
    "catalogue": "What is sold, for anybody to read.",
    "jobs": "Jobs of the account that a key belongs to.",
    "money": "Its balance, and what its jobs cost.",
    "meta": "The service itself.",
    "webhooks": "Addresses that hear of your jobs.",
    "internal": "Called by the node of a job, with the job's own token.",
}
GOOD = {
    200: "Here it is.",
    201: "The job is accepted.",
    202: "It is ended; its machine is given back.",
    206: "Here are the bytes that were asked for.",
}
JOB_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "The job: `job_` and 26 characters.",
    "schema": {"type": "string"},
}
KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A name for this submit: sent again with the same body, it gives the first job again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": wire.KEY_CHARS_MAX},
}
SECURITY = {
    "bearerAuth": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "sk-... or uck_...",
        "description": "A key of your account. Its scope `read` lets it read, `jobs` submit and cancel too.",
    },
    "uploadToken": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token of one job, in its environment as `UNIFY_COMPUTE_ARTIFACTS_TOKEN`. "
        "Good until two hours after the longest time that the job may run, and while the job is not over.",
    },
}


def document_of(operations: Iterable[JobOperation]) -> dict[str, Any]:
    """The whole document, for these operations."""
    known = sorted(operations, key=lambda op: (op.path, op.method))
    types = [kind for op in known for kind in (op.answers, op.body) if isinstance(kind, type)]
    _, components = msgspec.json.schema_components(
        [*types, wire.ErrorEnvelope, wire.JobStatus, wire.UploadWish], ref_template=REFERENCE
    )
    schemas = {name: _tidy(schema) for name, schema in components.items()}
    _refine(schemas)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for op in known:
        paths[op.path][op.method.lower()] = _operation(op)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Skyfleet paid jobs", "version": VERSION, "description": ABOUT},
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": {path: paths[path] for path in sorted(paths, key=lambda path: (path != HEALTH_PATH, path))},
        "components": {
            "schemas": {name: schemas[name] for name in sorted(schemas)},
            "securitySchemes": SECURITY,
        },
        "security": [{"bearerAuth": []}],
    }


def _operation(op: JobOperation) -> dict[str, Any]:
    out: dict[str, Any] = {"operationId": op.name, "tags": [op.tag], "summary": op.summary}
    if op.description:
        out["description"] = op.description
    if op.guarded != "key":
        out["security"] = [] if op.guarded == "nobody" else [{"uploadToken": []}]
    parameters = [
        *([JOB_ID] if "{id}" in op.path else []),
        *(_in_path(name) for name in re.findall(r"{(\w+)}", op.path) if name != "id"),
        *({"in": "query", "required": False, **parameter} for parameter in op.query),
        *([KEY] if op.keyed else []),
    ]
    if parameters:
        out["parameters"] = parameters
    if op.body is not None:
        media = "application/x-www-form-urlencoded" if op.form else JSON
        schema = {"$ref": REFERENCE.format(name=op.body.__name__)}
        out["requestBody"] = {"required": True, "content": {media: {"schema": schema}}}
    out["responses"] = _responses(op)
    return out


def _in_path(name: str) -> dict[str, Any]:
    """A part of an address that we made ourselves."""
    told = {
        "token": "What the address allows, signed.",
        "name": "The file's name.",
        "delivery": "A delivery.",
    }[name]
    return {"name": name, "in": "path", "required": True, "description": told, "schema": {"type": "string"}}


def _responses(op: JobOperation) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for status in op.statuses:
        out[str(status)] = {"description": GOOD[status], "content": _content(op)}
    by_status: dict[int, list[str]] = defaultdict(list)
    for code in op.codes:
        by_status[CODES[code][1]].append(code)
    for status in sorted(by_status):
        said: dict[str, Any] = {
            "description": "One of " + ", ".join(f"`{code}`" for code in by_status[status]) + ".",
            "content": {JSON: {"schema": ENVELOPE}},
            "x-error-codes": by_status[status],
        }
        if status == 401:
            said["headers"] = {
                "WWW-Authenticate": {"description": f"`{REALM}`.", "schema": {"type": "string"}}
            }
        if status == 429:
            retry = {"type": "integer", "minimum": 1}
            said["headers"] = {
                "Retry-After": {"required": True, "description": "Whole seconds to wait.", "schema": retry}
            }
        out[str(status)] = said
    return out


def _content(op: JobOperation) -> dict[str, Any]:
    if isinstance(op.answers, str):
        return {op.answers: {"schema": {"type": "string"}}}
    if op.answers is None:
        return {JSON: {"schema": {"type": "object"}}}
    return {JSON: {"schema": {"$ref": REFERENCE.format(name=op.answers.__name__)}}}


def _refine(schemas: dict[str, Any]) -> None:
    """Limits that have an error code of their own, so that the types themselves do not carry them."""
    schemas["JobSpec"]["properties"]["max_runtime_seconds"] |= {
        "minimum": 1,
        "maximum": wire.RUNTIME_SECONDS_MAX,
    }
    schemas["SubmitJobRequest"]["properties"]["metadata"]["maxProperties"] = wire.METADATA_MAX
    schemas["JobStatus"] = {
        "type": "string",
        "enum": list(cast("Any", wire.JobStatus).__args__),
        "description": "Where a job is. `succeeded`, `failed`, `interrupted` and `cancelled` are final.",
    }
    by_type: dict[str, list[str]] = defaultdict(list)
    for code, (kind, _) in CODES.items():
        by_type[kind].append(code)
    schemas["Error"]["x-error-codes"] = dict(by_type)


def _tidy(schema: Any) -> Any:
    """A schema in the form that readers know best: enums with their type, no titles, bare docstrings."""
    if isinstance(schema, list):
        return [_tidy(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    known = cast("dict[str, Any]", schema)
    out = {key: _tidy(value) for key, value in known.items() if key != "title" or not isinstance(value, str)}
    values = cast("list[Any] | None", out.get("enum"))
    if values is not None and "type" not in out and all(isinstance(v, str) for v in values):
        out = {"type": "string", **out}
    if values is not None and len(values) == 1:
        out["const"] = out.pop("enum")[0]
    if isinstance(out.get("description"), str):
        out["description"] = inspect.cleandoc(out["description"]).replace("``", "`")
    return out


DOCUMENT_PATH = f"{PREFIX}/openapi.json"
