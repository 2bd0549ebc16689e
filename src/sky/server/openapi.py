"""Prints the OpenAPI document of a face: ``python -m sky.server.openapi v1``. Needs no daemon."""

from __future__ import annotations

import json
import sys

from sky.api import app
from sky.api.jobs import face as jobs
from sky.api.requests import face as requests

FACES = {
    "v1": app.openapi_document,
    "requests": requests.openapi_document,
    "jobs": jobs.openapi_document,
}


def main() -> int:
    """0 printed; 2 for an unknown face."""
    face = sys.argv[1] if len(sys.argv) > 1 else "v1"
    if face not in FACES:
        sys.stderr.write(f"error: no face {face!r}; known: {', '.join(FACES)}\n")
        return 2
    json.dump(FACES[face](), sys.stdout, indent=2, sort_keys=True)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
