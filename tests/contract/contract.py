#!/usr/bin/env python3
"""Holds an OpenAPI document that the product serves against a contract, and prints every difference.

    contract.py CONTRACT SERVED        each a file or an http:// address; exit 0: nothing is missing

Everything the contract names must be there: paths, methods, parameters and their limits, request and
response bodies field by field, every declared status, every enum value, pattern and constant. More than
the contract is allowed (further paths, fields, statuses, codes): it is printed only with --extra.
Prose (descriptions, titles, examples) is never compared. Standard library only.
"""

from __future__ import annotations

import json
import sys
import urllib.request

LIMITS = ("pattern", "minimum", "maximum", "minLength", "maxLength", "maxProperties", "const", "format")
BINARY = ("application/octet-stream", "application/vnd.skyward.blob", "application/vnd.skyward.frames")


def load(where: str) -> dict:
    if where.startswith(("http://", "https://")):
        with urllib.request.urlopen(where, timeout=10) as answer:
            return json.load(answer)
    with open(where, encoding="utf-8") as file:
        return json.load(file)


class Document:
    def __init__(self, body: dict) -> None:
        self.body = body

    def resolve(self, node):
        for _ in range(20):
            if not (isinstance(node, dict) and "$ref" in node):
                return node if node is not None else {}
            target = self.body
            for part in node["$ref"].lstrip("#/").split("/"):
                target = target[part.replace("~1", "/").replace("~0", "~")]
            node = target
        raise SystemExit("a $ref that never ends")

    def schema(self, node) -> dict:
        """One schema with its reference resolved, and null, const and single-branch unions in one form."""
        node = self.resolve(node)
        if not isinstance(node, dict):
            return {}
        out, nullable = dict(node), False
        types = out.get("type")
        if isinstance(types, list):
            nullable |= "null" in types
            rest = [t for t in types if t != "null"]
            out["type"] = rest[0] if len(rest) == 1 else sorted(rest)
        for union in ("oneOf", "anyOf", "allOf"):
            if union in out:
                branches = [self.resolve(b) for b in out[union]]
                real = [b for b in branches if b.get("type") != "null"]
                nullable |= len(real) < len(branches)
                if len(real) == 1:
                    rest = {k: v for k, v in out.items() if k != union}
                    inner = self.schema(real[0])
                    nullable |= inner.pop("nullable", False)
                    out = {**inner, **rest}
                else:
                    out[union] = real
        if "enum" in out:
            nullable |= None in out["enum"]
            out["enum"] = [v for v in out["enum"] if v is not None]
            if len(out["enum"]) == 1 and "const" not in out:
                out["const"] = out.pop("enum")[0]
        out["nullable"] = nullable
        return out


class Check:
    def __init__(self, contract: Document, served: Document) -> None:
        self.contract, self.served, self.problems, self.extra = contract, served, [], []

    def problem(self, where: str, what: str) -> None:
        self.problems.append(f"{where}: {what}")

    def run(self) -> None:
        have = {normal(p): (p, item) for p, item in self.served.body.get("paths", {}).items()}
        for path, item in self.contract.body["paths"].items():
            if normal(path) not in have:
                self.problem(path, "path is missing")
                continue
            served_item = have.pop(normal(path))[1]
            for method, operation in item.items():
                if method not in ("get", "put", "post", "delete", "patch", "head"):
                    continue
                where = f"{method.upper()} {path}"
                if method not in served_item:
                    self.problem(where, "operation is missing")
                    continue
                self.operation(where, item, operation, served_item, served_item[method])
        self.extra += [f"{path}: path is not in the contract" for path, _ in have.values()]
        wanted = (
            self.contract.body.get("components", {}).get("schemas", {}).get("Error", {}).get("x-error-codes")
        )
        if wanted:
            text = json.dumps(self.served.body)
            for codes in wanted.values():
                for code in codes:
                    if f'"{code}"' not in text:
                        self.problem("error codes", f"{code} is nowhere in the served document")

    def operation(self, where, item, operation, served_item, served) -> None:
        wanted = self.parameters(self.contract, item, operation)
        offered = self.parameters(self.served, served_item, served)
        paths = iter([p for k, p in offered.items() if k[0] == "path"])
        for key, parameter in wanted.items():
            got = next(paths, None) if key[0] == "path" else offered.get(key)
            label = f"{where} {key[0]} {parameter['name']}"
            if got is None:
                self.problem(label, "parameter is missing")
                continue
            if got.get("required") and not parameter.get("required"):
                self.problem(label, "is required here, optional in the contract")
            self.compare(label, parameter.get("schema", {}), got.get("schema", {}), "request", ())
        body = self.contract.resolve(operation.get("requestBody") or {})
        if body:
            got_body = self.served.resolve(served.get("requestBody") or {})
            if not got_body:
                self.problem(where, "request body is missing")
            else:
                self.content(f"{where} body", body.get("content", {}), got_body.get("content", {}), "request")
        for status, response in operation.get("responses", {}).items():
            if status not in served.get("responses", {}):
                self.problem(where, f"status {status} is not declared")
                continue
            response = self.contract.resolve(response)
            got = self.served.resolve(served["responses"][status])
            self.content(f"{where} {status}", response.get("content", {}), got.get("content", {}), "response")
            for header in response.get("headers", {}) or {}:
                if header.lower() not in {h.lower() for h in got.get("headers", {}) or {}}:
                    self.problem(f"{where} {status}", f"header {header} is not declared")

    def parameters(self, document, item, operation) -> dict:
        both = [*item.get("parameters", []), *operation.get("parameters", [])]
        found = [document.resolve(p) for p in both]
        return {(p["in"], p["name"].lower() if p["in"] == "header" else p["name"]): p for p in found}

    def content(self, where, wanted, offered, direction) -> None:
        plain = {media_type(k): v for k, v in offered.items()}
        for kind, value in wanted.items():
            kind = media_type(kind)
            match = plain.get(kind) or next((plain[b] for b in BINARY if kind in BINARY and b in plain), None)
            if match is None:
                self.problem(where, f"{kind} is not offered")
            elif kind == "application/json":
                self.compare(where, value.get("schema", {}), match.get("schema", {}), direction, ())

    def compare(self, where, wanted, offered, direction, seen) -> None:
        mark = json.dumps([wanted, direction], sort_keys=True, default=str)
        if mark in seen or len(seen) > 12:
            return
        seen = (*seen, mark)
        a, b = self.contract.schema(wanted), self.served.schema(offered)
        differs = "type" in a and "type" in b and kinds(a) != kinds(b)
        if differs and not (direction == "request" and kinds(a) <= kinds(b)):
            self.problem(where, f"type {b['type']}, the contract says {a['type']}")
            return
        if a["nullable"] != b["nullable"] and ("type" in b or "properties" in b):
            wider = b["nullable"] and direction == "request"
            if not wider and not (a["nullable"] and direction == "response"):
                self.problem(where, f"nullable is {b['nullable']}, the contract says {a['nullable']}")
        for limit in LIMITS:
            if limit in a and a[limit] != b.get(limit) and limit != "format":
                self.problem(where, f"{limit} is {b.get(limit)!r}, the contract says {a[limit]!r}")
        if "default" in a and a["default"] is not None and a["default"] != b.get("default"):
            self.problem(where, f"default is {b.get('default')!r}, the contract says {a['default']!r}")
        if "enum" in a:
            values = set(map(str, b.get("enum", [b["const"]] if "const" in b else [])))
            for value in a["enum"]:
                if str(value) not in values:
                    self.problem(where, f"enum value {value!r} is missing")
            for value in values - set(map(str, a["enum"])):
                self.extra.append(f"{where}: enum value {value!r} is not in the contract")
        properties, have = a.get("properties", {}), b.get("properties", {})
        for name, child in properties.items():
            if name not in have:
                self.problem(f"{where}.{name}", "field is missing")
                continue
            self.compare(f"{where}.{name}", child, have[name], direction, seen)
        required, got = set(a.get("required", [])), set(b.get("required", []))
        if direction == "response":
            for name in sorted(required - got):
                if name in have:
                    self.problem(f"{where}.{name}", "is not declared as always present")
        else:
            for name in sorted(got - required):
                self.problem(f"{where}.{name}", "is required here, optional in the contract")
        if "items" in a:
            self.compare(f"{where}[]", a["items"], b.get("items", {}), direction, seen)
        if isinstance(a.get("additionalProperties"), dict) and isinstance(
            b.get("additionalProperties"), dict
        ):
            self.compare(
                f"{where}{{}}", a["additionalProperties"], b["additionalProperties"], direction, seen
            )


def kinds(schema) -> set:
    value = schema["type"]
    return set(value) if isinstance(value, list) else {value}


def media_type(text: str) -> str:
    return text.partition(";")[0].strip().lower()


def normal(path: str) -> str:
    return "/".join("{}" if part.startswith("{") else part for part in path.rstrip("/").split("/"))


def main() -> None:
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    if len(arguments) != 2:
        raise SystemExit(__doc__)
    check = Check(Document(load(arguments[0])), Document(load(arguments[1])))
    check.run()
    for line in check.problems:
        print(line)
    if "--extra" in sys.argv:
        for line in check.extra:
            print(f"extra: {line}")
    operations = sum(
        len([m for m in i if m in ("get", "put", "post", "delete", "patch", "head")])
        for i in check.contract.body["paths"].values()
    )
    paths = len(check.contract.body["paths"])
    print(f"{len(check.problems)} differences over {operations} operations of {paths} paths")
    raise SystemExit(1 if check.problems else 0)


if __name__ == "__main__":
    main()
