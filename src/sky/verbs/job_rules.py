"""Whether a job that is asked for can be taken, in the order in which its reasons are told.

Decides: which of several wrong things is named, and what a template makes of a request. Never: reads a row,
or holds money: who has found nothing wrong here may still lack balance or quota.
Follows: the first thing that is wrong, in the published order, is the one that is told, with its field.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import UNSET, Struct, field

from sky.domain.catalogue import Catalogue, JobTemplate, Place, Sku, candidates
from sky.domain.job import AFTER_MAX, RETRIES_MAX, RETRY_CODES
from sky.domain.job_errors import JobRefused
from sky.domain.nearby import hint
from sky.verbs.jobs import Wanted
from sky.wire import jobs as wire
from sky.wire.steps import HOST_IMAGE

_JOB_ID = re.compile(wire.JOB_ID)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = (wire.PREFIX_RESERVED, "SKY_")
MOUNT_CHARS_MAX = 512
MOUNTS_MAX = 100
SOURCE_CHARS_MAX = 4_096
ARGUMENTS_MAX = 4_096
PAIR_CHARS_MAX = 512
FORBIDDEN_MOUNTS = ("/", "/proc", "/sys", "/dev", "/etc", "/run")


class Offering(Struct, frozen=True):
    """What a deployment sells and can do. ``unusable`` says why a cloud cannot run containers; ``artifacts``
    whether outputs can be kept; ``host_jobs`` whether the image ``local`` is allowed."""

    catalogue: Catalogue
    enabled: frozenset[str]
    ceiling_seconds: int
    artifacts: bool
    host_jobs: bool
    unusable: Mapping[str, str] = field(default_factory=dict[str, str])

    def unavailable(self, template: JobTemplate) -> str | None:
        """Why a template cannot be used here now; None: it can."""
        reason = self.catalogue.unavailable(template)
        if reason is None and template.image == HOST_IMAGE and not self.host_jobs:
            return "it runs on the machine itself, which this deployment does not allow (allow_host_jobs)"
        return self._unplaceable(template) if reason is None else reason

    def _unplaceable(self, template: JobTemplate) -> str | None:
        """Why no place of a template's machine can run it now; None: one can."""
        places = candidates(self.catalogue.skus[template.sku], None, self.enabled)
        if not places:
            return f"no cloud that its machine {template.sku!r} is sold on is in use here"
        if template.image == HOST_IMAGE or any(place.cloud not in self.unusable for place in places):
            return None
        return "; ".join(f"{place.cloud}: {self.unusable[place.cloud]}" for place in places)


def requested(request: wire.SubmitJobRequest, offering: Offering) -> tuple[wire.SubmitJobRequest, Sku]:
    """The first checks, which need no job store: template, SKU, runtime. Returns the resolved request."""
    if request.template is not UNSET:
        request = _resolved(request, request.template, offering)
    sku = _sku(request, offering.catalogue)
    _runtime(_spec(request).max_runtime_seconds, offering.ceiling_seconds)
    return request, sku


def launchable(request: wire.SubmitJobRequest, sku: Sku, offering: Offering) -> Wanted:
    """The second checks: whether the job could be launched as it is. Takes what ``requested`` returned."""
    metadata = _metadata(request)
    spec = _spec(request)
    _command(spec)
    _env(spec.env, "spec.env")
    _reserved(spec.env)
    _sources(spec)
    _mounts(spec)
    if spec.outputs and not offering.artifacts:
        msg = "this deployment keeps no artifacts, so a job cannot have outputs; leave spec.outputs out"
        raise JobRefused("outputs_unsupported", msg, param="spec.outputs")
    places = _places(request, sku, offering)
    return Wanted(
        sku=sku,
        places=places,
        spec=msgspec.to_builtins(spec),
        metadata=metadata,
        max_runtime_seconds=_number(spec.max_runtime_seconds),
        after=_after(request),
        retry=_retry(request),
    )


# ── templates ───────────────────────────────────────────────────────────────────────────────────


def _resolved(request: wire.SubmitJobRequest, name: str, offering: Offering) -> wire.SubmitJobRequest:
    catalogue = offering.catalogue
    if name in catalogue.broken:
        msg = f"template {name!r} cannot be read now, for a reason of ours; try later, or tell the operator"
        raise JobRefused("template_resolution_failed", msg, param="template")
    template = catalogue.templates.get(name)
    if template is None:
        msg = f"there is no template {name[:80]!r}; {hint(name, catalogue.templates)}"
        raise JobRefused("unknown_template", msg, param="template")
    reason = offering.unavailable(template)
    if reason is not None:
        msg = f"template {name!r} cannot be used now: {reason}"
        raise JobRefused("template_unavailable", msg, param="template")
    for path in _sent(request):
        if path not in template.overridable:
            may = ", ".join(template.overridable) or "none"
            msg = f"template {name!r} fixes {path}; fields that may be sent with it: {may}"
            raise JobRefused("field_not_overridable", msg, param=path)
    spec = _spec(request)
    _env(spec.env, "spec.env")
    inputs = _bound(spec, template)
    return msgspec.structs.replace(
        request,
        template=UNSET,
        sku=template.sku if request.sku is UNSET else request.sku,
        spec=wire.JobSpec(
            image=template.image,
            command=template.command if spec.command is UNSET else spec.command,
            env={**template.env, **({} if spec.env is UNSET else spec.env)},
            inputs=inputs,
            outputs=tuple(wire.JobOutput(mount=o.mount) for o in template.outputs),
            max_runtime_seconds=template.max_runtime_seconds
            if spec.max_runtime_seconds is UNSET
            else spec.max_runtime_seconds,
        ),
    )


def _sent(request: wire.SubmitJobRequest) -> list[str]:
    """The fields of a request that a template would have to allow."""
    spec = _spec(request)
    given: dict[str, object] = {
        "sku": request.sku,
        "providers": request.providers,
        "spec.image": spec.image,
        "spec.command": spec.command,
        "spec.env": spec.env,
        "spec.outputs": spec.outputs,
        "spec.max_runtime_seconds": spec.max_runtime_seconds,
    }
    return [path for path, value in given.items() if value is not UNSET]


def _bound(spec: wire.JobSpec, template: JobTemplate) -> tuple[wire.JobInput, ...]:
    """Each mount of a template with the one source that was given for it."""
    given = () if spec.inputs is UNSET else spec.inputs
    mounts = [mount.mount for mount in template.inputs]
    found: dict[str, wire.JobInput] = {}
    for index, one in enumerate(given):
        where = f"spec.inputs[{index}].mount"
        if one.mount not in mounts:
            there = ", ".join(mounts) or "none"
            msg = f"template {template.id!r} has no input {one.mount[:80]!r}; it has {there}"
            raise JobRefused("unknown_input_mount", msg, param=where)
        if one.mount in found:
            msg = f"the input {one.mount!r} is bound twice; each is bound once"
            raise JobRefused("duplicate_input_mount", msg, param=where)
        found[one.mount] = one
    for mount in mounts:
        if mount not in found:
            msg = f"template {template.id!r} needs a source for its input {mount!r}: add it to spec.inputs"
            raise JobRefused("missing_input", msg, param="spec.inputs")
    return tuple(found[mount] for mount in mounts)


# ── the machine and its time ────────────────────────────────────────────────────────────────────


def _sku(request: wire.SubmitJobRequest, catalogue: Catalogue) -> Sku:
    name = request.sku
    if name is UNSET or not name:
        raise JobRefused("missing_sku", "sku is missing: name one of GET /compute/v1/skus", param="sku")
    sku = catalogue.skus.get(name)
    if sku is None:
        msg = f"there is no sku {name[:80]!r}; {hint(name, catalogue.skus)}"
        raise JobRefused("unknown_sku", msg, param="sku")
    if not sku.available:
        msg = f"sku {name!r} is listed and not sold now; choose one with available: true"
        raise JobRefused("sku_unavailable", msg, param="sku")
    return sku


def _runtime(seconds: int | msgspec.UnsetType, ceiling: int) -> None:
    where = "spec.max_runtime_seconds"
    if seconds is UNSET or seconds < 1:
        msg = f"{where} is missing or below 1: say for how many seconds the job may run at most"
        raise JobRefused("missing_max_runtime", msg, param=where)
    allowed = min(ceiling, wire.RUNTIME_SECONDS_MAX)
    if seconds > allowed:
        msg = f"{where} is {seconds}; a job may run for {allowed} s here at most"
        raise JobRefused("runtime_over_ceiling", msg, param=where)


# ── what runs ───────────────────────────────────────────────────────────────────────────────────


def _metadata(request: wire.SubmitJobRequest) -> dict[str, str]:
    metadata = {} if request.metadata is UNSET else request.metadata
    if len(metadata) > wire.METADATA_MAX:
        msg = f"metadata has {len(metadata)} pairs, of {wire.METADATA_MAX} at most"
        raise JobRefused("invalid_metadata", msg, param="metadata")
    for key, value in metadata.items():
        if not key or len(key) > PAIR_CHARS_MAX or len(value) > PAIR_CHARS_MAX or "\0" in key + value:
            msg = f"metadata {key[:40]!r}: keys and values are text of up to {PAIR_CHARS_MAX} characters"
            raise JobRefused("invalid_metadata", msg, param="metadata")
    return metadata


def _command(spec: wire.JobSpec) -> None:
    if spec.image is UNSET or not spec.image.strip():
        raise JobRefused("missing_image", "spec.image is missing: name a container image", param="spec.image")
    if spec.command is UNSET or not spec.command or not spec.command[0]:
        msg = "spec.command is missing: give the whole argument vector, such as ['python', 'run.py']"
        raise JobRefused("missing_command", msg, param="spec.command")
    if len(spec.command) > ARGUMENTS_MAX or any("\0" in word for word in spec.command):
        msg = f"spec.command has up to {ARGUMENTS_MAX} words, none with a NUL"
        raise JobRefused("missing_command", msg, param="spec.command")


def _env(env: Mapping[str, str] | msgspec.UnsetType, where: str) -> None:
    for name, value in () if env is UNSET else env.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            msg = f"{where}: {name[:80]!r} is no name of an environment variable (letters, digits and _)"
            raise JobRefused("invalid_env", msg, param=f"{where}.{name[:80]}")


def _reserved(env: Mapping[str, str] | msgspec.UnsetType) -> None:
    for name in () if env is UNSET else env:
        if name.upper().startswith(RESERVED):
            msg = f"spec.env: {name[:80]!r} is reserved; names must not begin with {' or '.join(RESERVED)}"
            raise JobRefused("reserved_env", msg, param=f"spec.env.{name[:80]}")


def _sources(spec: wire.JobSpec) -> None:
    for index, one in enumerate(() if spec.inputs is UNSET else spec.inputs):
        where = f"spec.inputs[{index}].source"
        problem = _bad_source(one.source)
        if problem is not None:
            msg = f"{where}: {problem}; give an https:// address that ends in a file name"
            raise JobRefused("invalid_input_source", msg, param=where)


def _bad_source(source: str) -> str | None:
    if len(source) > SOURCE_CHARS_MAX:
        return f"it is longer than {SOURCE_CHARS_MAX} characters"
    if not source.isprintable() or " " in source:
        return "it has spaces or characters that cannot be printed"
    try:
        parts = urlsplit(source)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return "it is no URL"
    if parts.scheme.lower() != "https":
        return f"it begins with {parts.scheme[:20] or 'nothing'!r}"
    if not host:
        return "it names no host"
    if parts.username is not None or parts.password is not None:
        return "it carries a user name or a password"
    name = unquote(parts.path.rpartition("/")[2])
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return "it does not end in a file name"
    return None


def _mounts(spec: wire.JobSpec) -> None:
    for field_name in ("inputs", "outputs"):
        given: Any = getattr(spec, field_name)
        mounts: Iterable[wire.JobInput | wire.JobOutput] = () if given is UNSET else given
        for index, one in enumerate(mounts):
            where = f"spec.{field_name}[{index}].mount"
            problem = _bad_mount(one.mount)
            if index >= MOUNTS_MAX:
                problem = f"there are more than {MOUNTS_MAX}"
            if problem is not None:
                msg = f"{where}: {problem}; give an absolute folder such as /data"
                raise JobRefused("invalid_mount", msg, param=where)


def _bad_mount(mount: str) -> str | None:
    if not mount.startswith("/") or len(mount) > MOUNT_CHARS_MAX:
        return f"{mount[:80]!r} is no absolute folder of up to {MOUNT_CHARS_MAX} characters"
    if not mount.isprintable() or ":" in mount or "," in mount:
        return "it has characters that a mount cannot have"
    plain = posixpath.normpath(mount)
    if plain.startswith("//") or plain != mount.rstrip("/") or ".." in mount.split("/"):
        return f"{mount[:80]!r} is not written plainly"
    if plain in FORBIDDEN_MOUNTS or plain.startswith(tuple(f"{x}/" for x in FORBIDDEN_MOUNTS[1:])):
        return f"{mount[:80]!r} belongs to the system"
    return None


# ── when ────────────────────────────────────────────────────────────────────────────────────────


def _after(request: wire.SubmitJobRequest) -> tuple[str, ...]:
    after = () if request.after is UNSET else request.after
    if len(after) > AFTER_MAX:
        msg = f"after names {len(after)} jobs, of {AFTER_MAX} at most"
        raise JobRefused("invalid_after", msg, param="after")
    for index, job_id in enumerate(after):
        where = f"after[{index}]"
        if not _JOB_ID.fullmatch(job_id):
            msg = f"{where}: {job_id[:40]!r} is no id of a job; it is like job_01J9ZC3W8ZK9V2N5Q6T7R8S9AB"
            raise JobRefused("invalid_after", msg, param=where)
        if job_id in after[:index]:
            raise JobRefused("invalid_after", f"{where}: {job_id} is named twice", param=where)
    return after


def _retry(request: wire.SubmitJobRequest) -> dict[str, Any] | None:
    retry = request.retry
    if retry is UNSET:
        return None
    if not 1 <= retry.max <= RETRIES_MAX:
        msg = f"retry.max is {retry.max}; a job is begun again 1 to {RETRIES_MAX} times, or leave retry out"
        raise JobRefused("invalid_retry", msg, param="retry.max")
    if not retry.on:
        msg = f"retry.on names nothing; name {' or '.join(RETRY_CODES)}, or leave retry out"
        raise JobRefused("invalid_retry", msg, param="retry.on")
    return {"max": retry.max, "on": sorted(set(retry.on))}


# ── where ───────────────────────────────────────────────────────────────────────────────────────


def _places(request: wire.SubmitJobRequest, sku: Sku, offering: Offering) -> tuple[Place, ...]:
    wanted = None if request.providers is UNSET or not request.providers else request.providers
    for index, cloud in enumerate(wanted or ()):
        if cloud not in sku.clouds:
            msg = f"sku {sku.id!r} is not offered on {cloud[:40]!r}; it is on {', '.join(sku.clouds)}"
            raise JobRefused("provider_not_offered", msg, param=f"providers[{index}]")
    places = candidates(sku, wanted, offering.enabled)
    if not places:
        msg = f"sku {sku.id!r} is asked for on {', '.join(wanted or sku.clouds)}, which is not in use here"
        raise JobRefused("upstream_unavailable", msg, param="providers" if wanted else "sku")
    if _spec(request).image == HOST_IMAGE:
        return _on_host(places, offering)
    usable = tuple(place for place in places if place.cloud not in offering.unusable)
    if not usable:
        reasons = "; ".join(f"{p.cloud}: {offering.unusable[p.cloud]}" for p in places)
        msg = f"no place of sku {sku.id!r} can run the image now ({reasons})"
        raise JobRefused("upstream_unavailable", msg, param="spec.image")
    return usable


def _on_host(places: tuple[Place, ...], offering: Offering) -> tuple[Place, ...]:
    here = tuple(place for place in places if place.cloud == "local")
    if not offering.host_jobs or not here:
        msg = (
            f"the image {HOST_IMAGE!r} stands for the machine itself, and this deployment does not allow it; "
            "name a container image"
        )
        raise JobRefused("missing_image", msg, param="spec.image")
    return here


def _spec(request: wire.SubmitJobRequest) -> wire.JobSpec:
    return wire.JobSpec() if request.spec is UNSET else request.spec


def _number(value: int | msgspec.UnsetType) -> int:
    if value is UNSET:
        msg = "a runtime that was checked is there"
        raise RuntimeError(msg)
    return value
