"""What a job printed, without what would let its reader act as the job.

Decides: which parts of a log are hidden: the job's own upload token, and what is signed in addresses.
Never: changes what is kept. Follows: whoever may read a log, and whoever is shown it later, uploads nothing.
"""

from __future__ import annotations

import re

from sky.api.jobs.files import ROOT
from sky.kit.masks import HIDDEN

_ADDRESS = re.compile(rf"({re.escape(ROOT)}/)[^/\s]+")
_QUERY = re.compile(
    r"(?i)([?&](?:x-(?:amz|goog)-[a-z-]+|signature|sig|awsaccesskeyid|googleaccessid)=)[^&\s\"']+"
)


def masked(text: str, token: str) -> str:
    """Some lines of a log; ``token`` opens the uploads of its job."""
    if token in text:
        text = text.replace(token, HIDDEN)
    if ROOT in text:
        text = _ADDRESS.sub(rf"\1{HIDDEN}", text)
    if "=" in text:
        text = _QUERY.sub(rf"\1{HIDDEN}", text)
    return text
