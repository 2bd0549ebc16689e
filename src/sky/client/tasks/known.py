"""Names that a task may use without asking anybody: clouds, and accelerators.

Decides: which names are known here, and how they are spelled. Never: says that others do not exist: a server
has providers and machines of its own, and refuses what it has not.
Follows: a name that is one slip away from a known one is refused with that, before anything is sent.
"""

from __future__ import annotations

CLOUDS = {
    "aws": "aws",
    "azure": "azure",
    "container": "container",
    "cudo": "cudo",
    "digitalocean": "do",
    "do": "do",
    "fluidstack": "fluidstack",
    "gcp": "gcp",
    "hyperbolic": "hyperbolic",
    "ibm": "ibm",
    "k8s": "kubernetes",
    "kubernetes": "kubernetes",
    "lambda": "lambda",
    "local": "local",
    "nebius": "nebius",
    "oci": "oci",
    "paperspace": "paperspace",
    "primeintellect": "primeintellect",
    "runpod": "runpod",
    "scp": "scp",
    "seeweb": "seeweb",
    "shadeform": "shadeform",
    "skypilot": "skypilot",
    "ssh": "ssh",
    "vast": "vast",
    "verda": "verda",
    "vsphere": "vsphere",
}
"""Every spelling of a cloud, and its name."""

SHORT = {"kubernetes": "k8s"}
"""What a cloud is called in ``infra``, where that is not its name."""

WITHOUT_REGIONS = {"kubernetes", "ssh"}
"""Clouds whose place is one name, with whatever slashes: a context, a pool."""

ACCELERATORS = (
    *("A10", "A10G", "A100", "A100-80GB", "A100-80GB-SXM", "A16", "A2", "A30", "A40", "A4000", "A4500"),
    *("A5000", "A6000", "B100", "B200", "B300", "GB200", "GB300", "GH200", "H100", "H100-MEGA"),
    *("H100-NVLINK", "H100-SXM", "H20", "H200", "H200-SXM", "H800", "K80", "L4", "L40", "L40S", "M4000"),
    *("M60", "MI100", "MI200", "MI210", "MI250", "MI25", "MI300X", "MI325X", "MI350X", "MI50", "P100", "P4"),
    *("P40", "P4000", "P5000", "P6000", "Gaudi HL-205", "Gaudi2", "Gaudi3", "Inferentia", "Inferentia2"),
    *("Trainium", "Trainium2", "Radeon MI25", "Radeon Pro V520", "RTX2060", "RTX2070", "RTX2080"),
    *("RTX2080Ti", "RTX3050", "RTX3060", "RTX3060Ti", "RTX3070", "RTX3070Ti", "RTX3080", "RTX3080Ti"),
    *("RTX3090", "RTX3090Ti", "RTX4000", "RTX4000-Ada", "RTX4060", "RTX4060Ti", "RTX4070", "RTX4070Ti"),
    *("RTX4080", "RTX4090", "RTX5000", "RTX5000-Ada", "RTX5060", "RTX5060Ti", "RTX5070", "RTX5070Ti"),
    *("RTX5080", "RTX5090", "RTX6000", "RTX6000-Ada", "RTX8000", "RTXA4000", "RTXA5000", "RTXA6000"),
    *("RTXPRO6000", "T4", "T4g", "V100", "V100-32GB"),
    *(f"tpu-{kind}" for kind in ("v2-8", "v2-32", "v3-8", "v3-32", "v4-8", "v4-16", "v5e-1", "v5e-4")),
    *(f"tpu-{kind}" for kind in ("v5litepod-1", "v5litepod-4", "v5litepod-8", "v5litepod-16", "v5p-8")),
    *(f"tpu-{kind}" for kind in ("v6e-1", "v6e-4", "v6e-8", "v6e-16")),
)
"""Accelerators as clouds sell them."""

FAMILIES = ("tpu-", "rtx")
"""Names that begin so have numbers in them that differ by little: they are never held for slips."""
