"""Secrets of tasks and tokens of users: none is found again in anything that is shown or logged."""

from __future__ import annotations

import secrets

from tests.conftest import RunningDaemon
from tests.requests.test_requests import Api

PRINTS = """
echo "plain $CANARY"
printf 'in two %s' "${CANARY:0:7}"; sleep 0.01; printf '%s\\n' "${CANARY:7}"
echo "to stderr $CANARY" >&2
head -c 65525 /dev/zero | tr '\\0' x; echo " $CANARY"
"""


def test_the_secrets_of_a_task_are_shown_to_nobody(daemon: RunningDaemon) -> None:
    api, cluster = Api(daemon.url), f"c-{secrets.token_hex(4)}"
    canaries = [f"Q{secrets.token_hex(9)}-{n}" for n in range(2)]
    task = {
        "secrets": {"CANARY": canaries[0]},
        "machines": [{"infra": "local"}],
        "setup": PRINTS,
        "run": PRINTS,
    }
    asked = [api.ask("launch", cluster_name=cluster, task=task)]
    shown = [str(api.get(asked[0]["request_id"]))]
    lines, end = api.logs(cluster)
    assert end["end"] == "SUCCEEDED"
    assert "(task) plain ***" in lines
    assert "(task) to stderr ***" in lines
    assert "(setup) plain ***" in lines
    second = {**task, "secrets": {"CANARY": canaries[1]}, "setup": "echo $CANARY; exit 3"}
    asked.append(api.ask("launch", cluster_name=cluster, task=second))
    shown.append(str(api.get(asked[1]["request_id"])))
    lines += api.logs(cluster)[0]
    token = api.http.post("/users/tokens", json={"name": cluster}).json()
    assert token["token"].startswith("sky_")
    shown.append(str(api.do("queue", cluster_name=cluster)))
    api.do("down", cluster_name=cluster)

    shown += lines
    shown += [api.http.get("/api/stream", params={"request_id": one["request_id"]}).text for one in asked]
    for path in ("/api/status?all_status=true", "/users/tokens", "/v1/loops", "/v1/tasks", "/v1/functions"):
        answer = api.http.get(path)
        assert answer.status_code == 200, answer.text
        shown.append(answer.text)
    shown.append(api.http.get("/v1/events", params={"follow": False, "after": 0}).text)
    shown.append((daemon.home / "server.log").read_text())
    api.http.delete(f"/users/tokens/{token['id']}")
    text = "\n".join(shown)
    for canary in (*canaries, token["token"]):
        assert canary not in text
        assert canary[8:] not in text
