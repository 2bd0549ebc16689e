"""``python -m sky.agent``: the agent of one node, which its environment variables describe."""

from __future__ import annotations

import sys

from sky.agent.main import main

if __name__ == "__main__":
    sys.exit(main())
