"""The part of lz4.block that is used here (the package ships no types)."""

from typing_extensions import Buffer

def compress(source: Buffer, *, store_size: bool = True) -> bytes: ...
