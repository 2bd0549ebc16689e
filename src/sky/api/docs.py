"""The OpenAPI document as one page to read.

Decides: how operations and shapes are laid out. Never: loads anything from elsewhere, and has no script.
Follows: it reads the same without a network, in a terminal's browser, and in print.
"""

from __future__ import annotations

import re
from collections import defaultdict
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --accent: #2a6fdb; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1rem 1.5rem 6rem; }
h1 { margin-bottom: 0; } h2 { border-bottom: 1px solid var(--line); margin-top: 3rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; } a { color: var(--accent); text-decoration: none; }
nav ul { columns: 20rem; list-style: none; padding: 0; } nav li { break-inside: avoid; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; } summary .path { font-weight: 600; }
.method { display: inline-block; width: 4.2rem; font-weight: 700; color: var(--accent); }
table { border-collapse: collapse; width: 100%; } td, th { border-top: 1px solid var(--line);
  padding: .25rem .6rem .25rem 0; text-align: left; vertical-align: top; }
.soft { opacity: .75; }
"""
METHODS = ("get", "post", "put", "patch", "delete")


def page_of(document: dict[str, Any]) -> bytes:
    """The page, as UTF-8 bytes of HTML."""
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = defaultdict(list)
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                by_tag[item[method]["tags"][0]].append((method, path, item[method]))
    info, schemas = document["info"], document["components"]["schemas"]
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(info['title'])}</title><style>{STYLE}</style>",
        f'<h1>{escape(info["title"])}</h1><p class="soft">{escape(info["version"])} · ',
        '<a href="/v1/openapi.json">openapi.json</a></p>',
        _prose(info["description"]),
        _contents(by_tag),
    ]
    for tag in document["tags"]:
        parts.append(
            f'<h2 id="{_anchor(tag["name"])}">{escape(tag["name"])}</h2>{_prose(tag["description"])}'
        )
        parts += [_operation(*found) for found in by_tag[tag["name"]]]
    parts.append('<h2 id="shapes">Shapes</h2>')
    parts += [_shape(name, schemas[name]) for name in sorted(schemas)]
    return "\n".join(parts).encode()


def _anchor(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower()


def _prose(text: str) -> str:
    out = escape(text, quote=False)
    out = re.sub(r"`+([^`]+)`+", r"<code>\1</code>", out)
    return "".join(f"<p>{part}</p>" for part in out.split("\n\n") if part.strip())


def _contents(by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]]) -> str:
    lines: list[str] = []
    for tag, found in by_tag.items():
        lines.append(f'<li><a href="#{_anchor(tag)}"><b>{escape(tag)}</b></a></li>')
        lines += [
            f'<li><a href="#{op["operationId"]}">{escape(op["summary"])}</a></li>' for _, _, op in found
        ]
    return f"<nav><ul>{''.join(lines)}</ul></nav>"


def _operation(method: str, path: str, op: dict[str, Any]) -> str:
    parts = [
        f'<details id="{op["operationId"]}"><summary><span class="method">{method.upper()}</span>',
        f'<code class="path">{escape(path)}</code> {escape(op["summary"])}</summary>',
        _prose(op.get("description", "")),
    ]
    if "parameters" in op:
        rows = [
            (
                f"<code>{escape(p['name'])}</code>{' *' if p['required'] else ''}",
                f'<span class="soft">{p["in"]}</span>',
                _type(p["schema"]),
                _prose(p.get("description", "")),
            )
            for p in op["parameters"]
        ]
        parts.append(_table(("parameter", "in", "type", ""), rows))
    if "requestBody" in op:
        rows = [
            (f"<code>{escape(media)}</code>", _type(body["schema"]))
            for media, body in op["requestBody"]["content"].items()
        ]
        parts.append(_table(("body", "type"), rows))
    answers: list[tuple[str, ...]] = []
    for status, said in op["responses"].items():
        types = " ".join(
            f"<code>{escape(media)}</code> {_type(body['schema'])}"
            for media, body in said.get("content", {}).items()
        )
        answers.append((f"<b>{status}</b>", _prose(said["description"]), types))
    parts.append(_table(("answer", "", "type"), answers))
    return "".join(parts) + "</details>"


def _shape(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        (
            f"<code>{escape(field)}</code>{' *' if field in required else ''}",
            _type(kind),
            f"<code>{escape(str(kind['default']))}</code>" if kind.get("default") not in (None, {}) else "",
        )
        for field, kind in schema.get("properties", {}).items()
    ]
    table = _table(("field", "type", "default"), rows)
    return (
        f'<details id="shape-{_anchor(name)}"><summary><code class="path">{escape(name)}</code></summary>'
        f"{_prose(schema.get('description', ''))}{table}</details>"
    )


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#shape-{_anchor(name)}">{escape(name)}</a>'
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(_type(branch) for branch in schema[union])
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map to {_type(schema['additionalProperties'])}"
    limits = [
        f"{sign} {schema[key]}"
        for key, sign in (
            ("minimum", "≥"),
            ("maximum", "≤"),
            ("minLength", "length ≥"),
            ("maxLength", "length ≤"),
        )
        if key in schema
    ]
    return escape(kind + (f" ({', '.join(limits)})" if limits else ""))
