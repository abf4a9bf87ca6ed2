"""Renders a Helm chart: the objects of plain Kubernetes, with what differs between installations
in values.yaml.

The objects are rendered with a mark in place of each such value, and the marks become templates:
so the chart and the plain manifests cannot differ.
"""

import re
from importlib.metadata import version
from typing import Any

from deploy.rendering import kubernetes, settings
from deploy.rendering.files import Files, as_yaml
from deploy.rendering.pods import Spec, resources
from serving.server_config import ServerConfig

_TEMPLATES = {
    "name": "{{ .Release.Name }}",
    "digest": "{{ .Values.server | toJson | sha256sum | quote }}",
    "configuration": "{{ .Values.server | toYaml | quote }}",
    "scraped": "{{ .Values.server.port | quote }}",
    "remainder": "{{ sub 100 (int .Values.canary.weight) }}",
}
_MARK = re.compile(r"@([\w.]+)@")
_WHOLE = re.compile(r"'@(?!name@)([\w.]+)@'")  # a value that is all of a field keeps its type


def render(config: ServerConfig) -> Files:
    plain = kubernetes.objects(config)  # which says what is wrong with the configuration
    names = [manifest["kind"] for manifest in plain]
    marked = [_marked(each) for each in kubernetes.objects(_with_marks(config))]
    assert names == [manifest["kind"] for manifest in marked]
    return {
        "Chart.yaml": as_yaml(_chart(config)),
        "values.yaml": as_yaml(_values(config)),
        "templates/kubernetes.yaml": _as_templates(as_yaml(*marked)),
    }


def _chart(config: ServerConfig) -> dict[str, str]:
    installed = version("attendant")
    return {
        "apiVersion": "v2",
        "name": config.deploy.name,
        "description": "A server for trained attention models",
        "version": installed,
        "appVersion": installed,
    }


def _values(config: ServerConfig) -> dict[str, Any]:
    values: dict[str, Any] = {
        "image": config.deploy.image,
        "server": settings.in_a_pod(config) | {"port": config.port},
        "resources": resources(
            settings.cpus(config, scaled=True),
            settings.memory_mib(config, scaled=True),
            settings.gpus(config, scaled=True),
        ),
    }
    if scaling := config.groups[0].autoscaling:
        values["autoscaling"] = scaling.model_dump()
    if canary := config.deploy.canary:
        values["canary"] = canary.model_dump()
    if volume := config.deploy.bundles_volume:
        values["bundlesVolume"] = volume
    return values


def _with_marks(config: ServerConfig) -> ServerConfig:
    """Put a mark wherever values.yaml has a value of its own."""
    deploy: dict[str, Any] = {"name": "@name@", "image": "@image@"}
    if config.deploy.bundles_volume:
        deploy["bundles_volume"] = "@bundlesVolume@"
    if config.deploy.canary:
        marks = {"image": "@canary.image@", "gateway": "@canary.gateway@"}
        deploy["canary"] = config.deploy.canary.model_copy(update=marks)
    groups = config.groups
    if scaling := groups[0].autoscaling:
        marks = {name: f"@autoscaling.{name}@" for name in type(scaling).model_fields}
        marked = scaling.model_copy(update=marks)
        groups = tuple(group.model_copy(update={"autoscaling": marked}) for group in groups)
    update = {"deploy": config.deploy.model_copy(update=deploy), "groups": groups}
    return config.model_copy(update={**update, "port": "@server.port@"})


def _marked(manifest: Spec) -> Spec:
    """Put marks where an object holds what is computed from the configuration."""
    match manifest:
        case {"kind": "ConfigMap"}:
            manifest["data"] = dict.fromkeys(manifest["data"], "@configuration@")
        case {"kind": "Deployment", "spec": {"template": template}}:
            template["metadata"]["annotations"]["attendant/configuration"] = "@digest@"
            template["metadata"]["annotations"]["prometheus.io/port"] = "@scraped@"
            template["spec"]["containers"][0]["resources"] = "@resources@"
        case {"kind": "HTTPRoute", "spec": {"rules": [{"backendRefs": [stable, canary]}]}}:
            stable["weight"], canary["weight"] = "@remainder@", "@canary.weight@"
    return manifest


def _as_templates(text: str) -> str:
    return _MARK.sub(_template, _WHOLE.sub(_template, text))


def _template(mark: re.Match[str]) -> str:
    is_whole = mark[0].startswith("'")
    default = f"{{{{ .Values.{mark[1]}{' | toJson' if is_whole else ''} }}}}"
    return _TEMPLATES.get(mark[1], default)
