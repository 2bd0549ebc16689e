"""The nearest known name to a mistyped one, as everybody has it. Decides: nothing of its own."""

from sky.kit.nearby import hint

__all__ = ["hint"]
