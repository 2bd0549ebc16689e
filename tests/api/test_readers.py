"""What readers may rely on that know the published interface's closed sets and nothing more.

Decides: that whatever holds a state or a code can be read by them. The sets are those of the contract, and
what is exact stands beside them. Never: says what else an answer holds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_events import follow

from sky.kit.version import CLIENT_RELEASE
from sky.store.views.errors import TOLD_AS, error_of

CONTRACT = json.loads((Path(__file__).parents[1] / "contract" / "control-plane.openapi.json").read_text())
SCHEMAS = CONTRACT["components"]["schemas"]
CODES = SCHEMAS["Error"]["properties"]["code"]["enum"]
EVENT_STATES = SCHEMAS["TaskEvent"]["properties"]["state"]["enum"]


def test_the_client_release_that_is_served_is_named(api: Any) -> None:
    assert api("GET", "/v1/health/live").json == {"live": True, "version": CLIENT_RELEASE}
    served = api("HEAD", "/v1/health/live")
    assert served.headers["content-length"] == str(len(api("GET", "/v1/health/live").content))


def test_a_cancelled_task_is_told_in_states_and_codes_of_the_contract(
    api: Any, tools: Any, idle: dict[str, Any]
) -> None:
    function, arguments = tools.packed(print), tools.packed(((), {}))
    api("PUT", f"/v1/functions/{tools.sha256(function)}", function, content_type="application/octet-stream")
    api("PUT", f"/v1/blobs/{tools.sha256(arguments)}", arguments, content_type="application/octet-stream")
    names = {"function": tools.sha256(function), "args_sha256": tools.sha256(arguments)}
    task = api("POST", "/v1/tasks", {"compute": idle["id"], **names}).json
    api("DELETE", f"/v1/tasks/{task['id']}")
    ended = tools.until(
        lambda: (found := api("GET", f"/v1/tasks/{task['id']}").json)["finished_at"] and found, "it ended"
    )
    assert ended["state"] == "cancelled"
    for execution in ended["executions"]:
        assert execution["error"]["code"] == "task_failed"
        assert execution["error"]["details"]["cause"] == "cancelled"
    told: list[tuple[str, dict[str, Any]]] = []
    with follow(api, f"?task={task['id']}") as reader:
        for _, name, payload in reader:
            told.append((name, payload))
            if name == "task.cancelled":
                break
    assert {payload["state"] for _, payload in told} <= set(EVENT_STATES)
    assert (told[0][0], told[0][1]["state"], told[0][1]["now"]) == ("task.queued", "started", "queued")
    assert (told[-1][1]["state"], told[-1][1]["now"]) == ("failed", "cancelled")


@pytest.mark.parametrize("cause", [*TOLD_AS, *CODES, "unauthorized", "a word of an older release"])
def test_a_stored_error_is_told_by_a_code_of_the_contract(cause: str) -> None:
    told = error_of({"code": cause, "message": "why", "retryable": True, "details": {"field": "x"}})
    assert told is not None
    assert told.code in CODES
    assert told.details is not None
    assert told.details.get("cause", told.code) == cause
    assert (told.details["field"], told.message, told.retryable) == ("x", "why", True)
