"""The API described from its own table of operations: OpenAPI 3.1 for a microversion, and a plain listing."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from kilonova import __version__
from kilonova.api.faults import NAMES
from kilonova.base.body import Query, shape
from kilonova.base.operation import TABLE, Operation, Table
from kilonova.base.versions import Version

_EVERYWHERE = (401, 406, 503)

_PHRASES = {
    200: "Done.",
    201: "Made.",
    202: "Accepted: it is being done.",
    204: "Done; there is no body.",
    207: "Some were done, some were not.",
    400: "The request is not valid.",
    401: "The token is missing or not valid.",
    403: "The caller may not do this, or a quota is exhausted.",
    404: "There is no such thing, or not at this microversion.",
    406: "The microversion is not supported.",
    409: "The state of the thing does not allow this.",
    501: "The hypervisor cannot do this.",
    503: "A service that is needed is not available.",
}


class Row(NamedTuple):
    """One line of ``nova-manage api list``."""

    method: str
    path: str
    action: str
    since: str
    until: str
    rule: str
    success: int
    handler: str


def listing(table: Table = TABLE) -> list[Row]:
    """Every operation of the table, by path."""
    rows = [
        Row(
            operation.method,
            operation.path,
            operation.action or "",
            str(operation.span.since),
            str(operation.span.until),
            operation.rule,
            operation.success,
            f"{operation.handler.__module__}.{operation.name}",
        )
        for operation in table.operations
    ]
    return sorted(rows, key=lambda row: (row.path, row.method, row.action, Version.parse(row.since)))


def document(version: Version, *, table: Table = TABLE) -> dict[str, Any]:
    """The OpenAPI document of a microversion. What stands in ``table`` is what is described: load the API first."""
    grouped: dict[tuple[str, str], list[Operation]] = {}
    for operation in table.operations:
        if version in operation.span:
            grouped.setdefault((operation.path, operation.method), []).append(operation)
    paths: dict[str, dict[str, Any]] = {}
    for (path, method), operations in sorted(grouped.items()):
        paths.setdefault(path, {})[method.lower()] = _described(path, operations, version=version)
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Compute API at microversion {version}", "version": __version__},
        "servers": [{"url": "/v2.1"}, {"url": "/v2.1/{project_id}", "variables": {"project_id": {"default": ""}}}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}},
            "schemas": {"Fault": _fault_schema()},
            "responses": {str(code): _fault(code) for code in _EVERYWHERE},
        },
    }


def _fault_schema() -> dict[str, Any]:
    inner = {
        "type": "object",
        "properties": {
            "code": {"type": "integer"},
            "message": {"type": "string"},
            "retryAfter": {"type": "string"},
        },
        "required": ["code", "message"],
    }
    names = sorted({*NAMES.values(), "computeFault"})
    return {
        "type": "object",
        "properties": dict.fromkeys(names, inner),
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }


def _fault(code: int) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Fault"}}}
    return {"description": _PHRASES.get(code, "Refused."), "content": content}


def _described(path: str, operations: list[Operation], *, version: Version) -> dict[str, Any]:
    """One method of one path; the actions of a path are alternatives of its body."""
    first = operations[0]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]
    parameters.append(
        {
            "name": "OpenStack-API-Version",
            "in": "header",
            "schema": {"type": "string", "const": f"compute {version}"},
        }
    )
    if first.query is not None:
        parameters += _query_parameters(first.query, version)
    described: dict[str, Any] = {
        "operationId": _operation_id(path, operations),
        "summary": _summary(first) if len(operations) == 1 else "Do something with it.",
        "tags": [path.strip("/").split("/")[0]],
        "parameters": parameters,
        "responses": _responses(operations),
        "x-policy": sorted({operation.rule for operation in operations}),
    }
    body = _request_body(operations, version)
    if body is not None:
        described["requestBody"] = body
    return described


def _operation_id(path: str, operations: list[Operation]) -> str:
    if len(operations) == 1 and operations[0].action is None:
        return operations[0].name
    return "act_on_" + re.sub(r"\W+", "_", path.removesuffix("/action")).strip("_")


def _summary(operation: Operation) -> str:
    text = (operation.handler.__doc__ or operation.name).strip()
    return re.split(r"(?<=[.;:])\s", text.replace("\n", " "), maxsplit=1)[0]


def _query_parameters(query: type[Query], version: Version) -> list[dict[str, Any]]:
    schema = inlined(msgspec.json.schema(shape(query, version)))
    return [{"name": name, "in": "query", "schema": _of_query(of)} for name, of in schema.get("properties", {}).items()]


def _of_query(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter's schema: what is absent is not written as null."""
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) == 1:
        return dict(kinds[0])
    without = {key: value for key, value in schema.items() if not (key == "default" and value is None)}
    return without | {"anyOf": kinds} if kinds else without


def _responses(operations: list[Operation]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for success in sorted({operation.success for operation in operations}):
        found[str(success)] = {"description": _PHRASES.get(success, "Done.")}
        if success != 204:
            found[str(success)]["content"] = {"application/json": {"schema": {}}}
    for code in sorted({403, *(code for operation in operations for code in operation.refuses)}):
        if code not in _EVERYWHERE:
            found[str(code)] = _fault(code)
    for code in _EVERYWHERE:
        found[str(code)] = {"$ref": f"#/components/responses/{code}"}
    return found


def _request_body(operations: list[Operation], version: Version) -> dict[str, Any] | None:
    schemas = [_body_schema(operation, version) for operation in operations]
    given = [schema for schema in schemas if schema is not None]
    if not given:
        return None
    schema = given[0] if len(given) == 1 else {"oneOf": given}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _body_schema(operation: Operation, version: Version) -> dict[str, Any] | None:
    schema = inlined(operation.body.json_schema(version)) if operation.body is not None else None
    if operation.action is None:
        return schema
    return {
        "type": "object",
        "title": operation.action,
        "description": _summary(operation),
        "properties": {operation.action: {} if schema is None else schema},
        "required": [operation.action],
        "additionalProperties": False,
    }


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON Schema with its definitions put in where they are referred to; none of ours refers to itself."""
    definitions = schema.get("$defs", {})

    def resolve(part: Any) -> Any:
        if isinstance(part, list):
            return [resolve(item) for item in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            target = resolve(definitions[part["$ref"].rpartition("/")[2]])
            return target | {key: resolve(value) for key, value in part.items() if key != "$ref"}
        return {key: resolve(value) for key, value in part.items() if key != "$defs"}

    found: dict[str, Any] = resolve(schema)
    return found
