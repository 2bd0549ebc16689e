"""The pages of the three HTTP interfaces, from the documents that the daemon serves.

Decides: how routes, parameters, answers and shapes stand in tables. Never: says anything of its own about a
route: what is written here is what ``sky openapi`` prints. Follows: a route that is added is on its page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from marked import HEAD, header, joined, row

from sky.api import app
from sky.api.jobs import face as jobs
from sky.api.requests import face as requests

METHODS = ("get", "post", "put", "patch", "delete")
"""HEAD is what GET is, without a body."""
Document = dict[str, Any]


def shape(schema: Document) -> str:
    """A type in a few words, with links to the shapes of the page."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{word(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(shape(one) for one in schema.get("anyOf") or schema["oneOf"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {shape(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {shape(schema['additionalProperties'])}"
    if isinstance(kind, list):
        return " or ".join(kind)
    return f"{kind or 'anything'}{limits(schema)}"


def word(value: object) -> str:
    """A value as JSON has it, texts without their quotes."""
    return value if isinstance(value, str) and value else json.dumps(value)


def limits(schema: Document) -> str:
    """What a number or a text may be."""
    said = [
        f"{sign} {schema[name]:,}"
        for name, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"))
        if name in schema
    ]
    if "maxLength" in schema:
        said.append(f"up to {schema['maxLength']:,} characters")
    if "format" in schema:
        said.append(schema["format"])
    return f" ({', '.join(said)})" if said else ""


def content(part: Document) -> str:
    """What a body is: its shape, or its media type."""
    kinds = [
        shape(said["schema"]) if "json" in kind and "$ref" in said.get("schema", {}) else f"`{kind}`"
        for kind, said in part.get("content", {}).items()
    ]
    return " or ".join(dict.fromkeys(kinds))


def parameters(operation: Document) -> Iterator[str]:
    for one in operation.get("parameters", []):
        if one["in"] == "path":
            continue
        name = f"`{one['name']}`" if one["in"] == "header" else f"`?{one['name']}=`"
        needed = " (needed)" if one.get("required") else ""
        yield f"{name}{needed}: {joined(one.get('description') or shape(one.get('schema', {})))}"


def operation_lines(method: str, path: str, operation: Document) -> Iterator[str]:
    yield from ("", f"### `{method.upper()} {path}`", "", f"{joined(operation['summary'])}.")
    if operation.get("description"):
        yield from ("", *(joined(part) for part in operation["description"].split("\n\n")))
    yield ""
    if "requestBody" in operation:
        yield f"- Body: {content(operation['requestBody'])}"
    for said in parameters(operation):
        yield f"- {said}"
    refused: list[str] = []
    for status, answer in operation["responses"].items():
        if codes := answer.get("x-error-codes"):
            refused += [f"`{code}` ({status})" for code in codes]
        else:
            body = content(answer)
            yield f"- {status}: {joined(answer['description'])}{f' {body}' if body else ''}"
    if refused:
        yield f"- Refused with {', '.join(refused)}"


def shape_lines(name: str, schema: Document) -> Iterator[str]:
    yield from ("", f"### {name}", "")
    if schema.get("description"):
        yield from (joined(schema["description"]), "")
    fields = schema.get("properties", {})
    if not fields:
        yield f"{shape(schema)}."
        return
    needed = schema.get("required", [])
    yield from header("field", "what it takes", "unless said", "meaning")
    for field, said in fields.items():
        default = f"`{word(said['default'])}`" if said.get("default") is not None else "–"
        told = joined(said.get("description", "")) or "–"
        yield row(f"`{field}`", shape(said), "*needed*" if field in needed else default, told)


def page(title: str, face: str, document: Document) -> str:
    """Everything that a document says, by tag."""
    described = document["info"]["description"].strip().split("\n\n")
    lines = [HEAD, f"# {title}", "", *(f"{joined(part)}\n" for part in described)]
    lines.append(f"The same for programs, as OpenAPI {document['openapi']}: `sky openapi {face}`.")
    for tag in document["tags"]:
        lines += ["", f"## {tag['name'].capitalize()}", "", joined(tag["description"])]
        for path, operations in document["paths"].items():
            for method in METHODS:
                if method in operations and tag["name"] in operations[method]["tags"]:
                    lines += operation_lines(method, path, operations[method])
    lines += ["", "## Shapes"]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += shape_lines(name, schema)
    titles = [line.lower().lstrip("# ") for line in lines if line.startswith("#")]
    assert len(titles) == len(set(titles)), "two headings of one name: links would lead to the first"
    return "\n".join(lines) + "\n"


def control_plane_page() -> str:
    return page("The control plane over HTTP", "v1", app.openapi_document())


def requests_page() -> str:
    return page("Requests over HTTP", "requests", requests.openapi_document())


def paid_jobs_page() -> str:
    return page("Paid jobs over HTTP", "jobs", jobs.openapi_document())
