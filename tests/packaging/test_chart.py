"""The chart, rendered by Helm's own library and judged by the schemas that Kubernetes publishes.

Decides: which ways of installing must give what a cluster takes, and which are refused with what to do.
Never: renders anything itself, or reaches a cluster.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.packaging.conftest import ROOT, run
from tests.packaging.test_container import is_setting

from sky.kit.version import VERSION

CHART = ROOT / "packaging" / "helm" / "skyfleet"
KUBERNETES = ("1.29.0", "1.37.0")
RENDER = """
import json, sys
import helm_python as helm
chart, asked = sys.argv[1], json.load(sys.stdin)
told = {"lint": helm.lint(chart), "rendered": []}
with helm.Chart.load(chart) as loaded:
    told["name"], told["version"], told["values"] = loaded.name, loaded.version, loaded.values
    for values in asked:
        try:
            told["rendered"].append(loaded.render(values, name="ours", namespace="prod"))
        except helm.HelmError as error:
            told["rendered"].append(str(error))
json.dump(told, sys.stdout)
"""
SEVERAL = {
    "replicas": 3,
    "database": {"existingSecret": "sky-database"},
    "shared": {"existingClaim": "sky-files"},
}
PROXY = {"enabled": True, "networks": ["10.0.0.0/8", "fd00::/8"]}
EVERYTHING: dict[str, Any] = {
    **SEVERAL,
    "proxy": PROXY,
    "names": ["sky.example.com"],
    "settings": {"SKY_LOG_LEVEL": "debug", "SKY_FULL_SYNC": True, "SKY_JOB_LOG_DAYS": 30},
    "image": {"repository": "registry.example.com/skyfleet", "tag": "next", "pullSecrets": ["registry"]},
    "ingress": {"enabled": True, "host": "sky.example.com", "className": "nginx", "tlsSecretName": "sky-tls"},
    "networkPolicy": {"enabled": True},
    "provider": {"namespace": "research"},
    "service": {"annotations": {"example.com/owner": "us"}},
    "serviceAccount": {"annotations": {"example.com/role": "sky"}},
    "state": {"storageClass": "fast"},
    "podAnnotations": {"example.com/scrape": "no"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
}
TUNNEL: dict[str, Any] = {"provider": {"tunnel": True}}
LEAST: dict[str, Any] = {"provider": {"enabled": False}, "serviceAccount": {"create": False}}
REFUSED: dict[str, dict[str, Any]] = {
    "several daemons need one PostgreSQL": {"replicas": 2},
    "several daemons need one folder": {"replicas": 2, "database": {"existingSecret": "db"}},
    "give the networks that yours calls from": {"proxy": {"enabled": True}},
    "give the name that others use": {"ingress": {"enabled": True}},
    "settings.SKY_PORT is set by this chart": {"settings": {"SKY_PORT": "1"}},
    "additional properties 'replica' not allowed": {"replica": 2},
    "SKY-PORT": {"settings": {"SKY-PORT": "1"}},
}


class Helm:
    """What Helm said about the chart, in one go: loading it is most of what it costs."""

    def __init__(self, judges: Path) -> None:
        self._judges = judges
        self.asked: list[dict[str, Any]] = [{}, EVERYTHING, LEAST, TUNNEL, *REFUSED.values()]

    @cached_property
    def told(self) -> dict[str, Any]:
        """Its whole answer."""
        done = run(self._judges / "python", "-c", RENDER, CHART, input=json.dumps(self.asked))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def answer(self, values: dict[str, Any]) -> Any:
        """What came of some values: files by name, or the words of a refusal."""
        return self.told["rendered"][self.asked.index(values)]

    def items(self, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """What would be made, by kind."""
        files = self.answer(values)
        assert isinstance(files, dict), files
        texts = [text for name, text in files.items() if name.endswith(".yaml")]
        items = [item for text in texts for item in yaml.safe_load_all(text) if item]
        assert len({item["kind"] for item in items}) == len(items)
        return {item["kind"]: item for item in items}


@pytest.fixture(scope="module")
def helm(judges: Path) -> Helm:
    return Helm(judges)


def daemon_of(items: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return items["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]


def variables(items: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in daemon_of(items)["env"]}


def test_helm_has_nothing_to_say_but_that_there_is_no_picture(helm: Helm) -> None:
    assert helm.told["lint"]["errors"] == []
    assert [one["error"] for one in helm.told["lint"]["messages"]] == ["icon is recommended"]
    assert (helm.told["name"], helm.told["version"]) == ("skyfleet", VERSION)
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == VERSION


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", [{}, EVERYTHING, LEAST], ids=["nothing", "everything", "least"])
def test_kubernetes_takes_all_of_it(helm: Helm, values: dict[str, Any], version: str) -> None:
    items = helm.items(values)
    for item in items.values():
        kubernetes_validate.validate(item, version, strict=True)
    labels = items["StatefulSet"]["spec"]["selector"]["matchLabels"]
    made = items["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert labels.items() <= made.items()
    assert items["Service"]["spec"]["selector"] == labels
    assert [name for name in variables(items) if not is_setting(name)] == []
    volumes = {one["name"] for one in items["StatefulSet"]["spec"]["template"]["spec"]["volumes"]} | {"state"}
    assert {one["name"] for one in daemon_of(items)["volumeMounts"]} == volumes


def test_what_is_said_decides_what_is_made(helm: Helm) -> None:
    alone = {"StatefulSet", "Service"}
    access = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    assert set(helm.items(LEAST)) == alone
    assert set(helm.items({})) == alone | access
    assert set(helm.items(EVERYTHING)) == alone | access | {"Ingress", "NetworkPolicy", "PodDisruptionBudget"}
    told, small = variables(helm.items(EVERYTHING)), variables(helm.items({}))
    assert told["SKY_NAMES"] == "sky.example.com,ours-skyfleet.prod:7590,ours-skyfleet.prod.svc:7590"
    assert told["SKY_PROXIES"] == "10.0.0.0/8,fd00::/8"
    assert told["SKY_HOST"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert (small["SKY_HOST"], small["SKY_TLS_CERT"]) == ("0.0.0.0", "/etc/skyfleet/tls/tls.crt")
    assert "SKY_TLS_CERT" not in told
    assert (told["SKY_FULL_SYNC"], told["SKY_JOB_LOG_DAYS"]) == ("true", "30")
    for items, scheme in ((helm.items(EVERYTHING), "HTTP"), (helm.items({}), "HTTPS")):
        probes = [
            daemon_of(items)[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")
        ]
        assert {(probe["path"], probe["scheme"]) for probe in probes} == {("/api/health", scheme)}


def test_pods_may_do_little(helm: Helm) -> None:
    pod = helm.items({})["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    assert f"USER {user}\n" in (ROOT / "Dockerfile").read_text()
    assert daemon_of(helm.items({}))["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["terminationGracePeriodSeconds"] > float(variables(helm.items({}))["SKY_STOP_SECONDS"])


def test_the_account_may_do_what_the_provider_needs_and_no_more(helm: Helm) -> None:
    page = (ROOT / "docs" / "providers" / "kubernetes.md").read_text(encoding="utf-8")
    [text] = [body for body in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "kind: Role\n" in body]
    needed = {item["kind"]: item["rules"] for item in yaml.safe_load_all(text)}
    items = helm.items(EVERYTHING)
    assert {kind: items[kind]["rules"] for kind in ("Role", "ClusterRole")} == needed
    assert items["Role"]["metadata"]["namespace"] == "research"
    [subject] = items["RoleBinding"]["subjects"]
    account = items["ServiceAccount"]["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    assert (
        helm.items(LEAST)["StatefulSet"]["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    )


def test_the_account_may_reach_into_pods_only_where_that_is_asked_for(helm: Helm) -> None:
    page = (ROOT / "docs" / "providers" / "kubernetes.md").read_text(encoding="utf-8")
    [text] = re.findall(r"`(\{apiGroups: [^`]*portforward[^`]*)`", page)
    rules = {said: helm.items(values)["Role"]["rules"] for said, values in (("", {}), ("tunnel", TUNNEL))}
    assert rules["tunnel"] == [*rules[""], yaml.safe_load(text)]
    kubernetes_validate.validate(helm.items(TUNNEL)["Role"], KUBERNETES[-1], strict=True)


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_work_is_refused_with_what_to_do(helm: Helm, words: str) -> None:
    told = helm.answer(REFUSED[words])
    assert isinstance(told, str), "it was rendered"
    assert words in told


def test_the_schema_knows_every_value(helm: Helm) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    def check(where: str, known: dict[str, Any], values: dict[str, Any]) -> None:
        assert set(values) <= set(known["properties"]), where
        for name, value in values.items():
            inner = known["properties"][name]
            if isinstance(value, dict) and inner.get("properties"):
                assert set(value) == set(inner["properties"]), f"{where}.{name}"
                check(f"{where}.{name}", inner, value)

    check("values", schema, helm.told["values"])
    assert set(schema["properties"]) - {"global"} == set(helm.told["values"])
