"""The manifests of examples/kubernetes, checked against Kubernetes' API rules. They were not run on a cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = list(yaml.safe_load_all((ROOT / "examples" / "kubernetes" / "dask.yaml").read_text()))
VERSIONS = {"Namespace": "v1", "Service": "v1", "Deployment": "apps/v1", "DaemonSet": "apps/v1"}
FIELDS = {
    "Service": {"selector", "ports"},
    "Deployment": {"replicas", "strategy", "selector", "template"},
    "DaemonSet": {"selector", "updateStrategy", "template"},
}
POD = {
    "automountServiceAccountToken", "containers", "dnsPolicy", "hostNetwork", "nodeSelector", "securityContext",
    "volumes",
}  # fmt: skip
CONTAINER = {"name", "image", "command", "args", "env", "ports", "resources", "securityContext", "volumeMounts"}
DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def of(kind: str) -> dict[str, Any]:
    [found] = [each for each in MANIFESTS if each["kind"] == kind]
    return found


def container(kind: str) -> dict[str, Any]:
    [found] = of(kind)["spec"]["template"]["spec"]["containers"]
    return found


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: each["kind"])
def test_a_manifest_has_its_version_and_a_name(manifest: dict[str, Any]) -> None:
    assert manifest["apiVersion"] == VERSIONS[manifest["kind"]]
    assert DNS_LABEL.fullmatch(manifest["metadata"]["name"])
    if manifest["kind"] != "Namespace":
        assert manifest["metadata"]["namespace"] == of("Namespace")["metadata"]["name"]
        assert set(manifest["spec"]) == FIELDS[manifest["kind"]]


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_pods_are_selected_by_their_labels_and_mount_what_they_name(kind: str) -> None:
    spec = of(kind)["spec"]
    template = spec["template"]
    assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    pod, inside = template["spec"], container(kind)
    assert set(pod) <= POD and set(inside) <= CONTAINER
    volumes = {each["name"]: set(each) - {"name"} for each in pod["volumes"]}
    assert all(len(sources) == 1 for sources in volumes.values())
    assert {each["name"] for each in inside["volumeMounts"]} == set(volumes)
    # Arguments and values of variables are strings; Kubernetes would refuse a bare number or `yes`.
    words = [*inside["command"], *inside["args"], *(each["value"] for each in inside.get("env", []) if "value" in each)]
    assert all(isinstance(each, str) for each in words)
    assert inside["image"] and DNS_LABEL.fullmatch(inside["name"])


def test_workers_find_the_scheduler_that_its_service_leads_to() -> None:
    service = of("Service")
    [port] = service["spec"]["ports"]
    scheduler = of("Deployment")["spec"]["template"]
    assert service["spec"]["selector"].items() <= scheduler["metadata"]["labels"].items()
    assert port["targetPort"] in [each["containerPort"] for each in container("Deployment")["ports"]]
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert f"tls://{name}.{namespace}.svc:{port['port']}" in container("DaemonSet")["command"]


def test_a_worker_has_its_nodes_name_and_network_and_no_limits() -> None:
    worker = container("DaemonSet")
    name = worker["command"][worker["command"].index("--name") + 1]
    [node] = [each for each in worker["env"] if f"$({each['name']})" == name]
    assert node["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    pod = of("DaemonSet")["spec"]["template"]["spec"]
    assert pod["hostNetwork"] and pod["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert "limits" not in worker["resources"]


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_nobody_without_a_certificate_is_let_in_and_nothing_runs_as_root(kind: str) -> None:
    words = [*container(kind)["command"], *container(kind)["args"]]
    assert {"--tls-ca-file", "--tls-cert", "--tls-key"} <= set(words)
    assert of(kind)["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"]
    assert container(kind)["securityContext"]["allowPrivilegeEscalation"] is False
