"""The loops: woken by a key, each reads, asks a plan, does at most one thing outside, writes the fact."""
