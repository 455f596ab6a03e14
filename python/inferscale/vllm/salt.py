"""Keeps vLLM's prefix cache exact: blocks that may hold injected KV get hashes of their own.

vLLM hashes blocks in a chain. The hash of the first block that holds injected tokens of a group of
spans is mixed with what is injected there, and vLLM chains the rest from it. So blocks before stay
shared with everybody, and a later prompt that begins with the same groups hits them all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inferscale import _core
from inferscale.vllm.plan import KEY_BYTES, Inject

Flags = npt.NDArray[np.bool_]
PREFIX = "inferscale:"  # of salts that are ours alone


@dataclass(frozen=True)
class Mark:
    """From prompt token `first` on, KV may be what `digest` names."""

    first: int
    digest: bytes


def marks(plan: Inject, good: Flags, fingerprint: bytes) -> list[Mark]:
    """One for each group of spans that holds inexact KV; spans that are not `good` are computed."""
    found: list[Mark] = []
    counts = good & (plan.end > plan.exact)
    rows = np.stack((plan.first, plan.tokens, plan.record_token), axis=1)
    keys = np.frombuffer(plan.keys, np.uint8).reshape(-1, KEY_BYTES)
    for group in plan.groups():
        of = np.flatnonzero(counts[group.start : group.stop]) + group.start
        if not len(of):
            continue
        digest = _core.hash128(
            b"inject", fingerprint, plan.tenant.encode(), rows[of].tobytes(), keys[of].tobytes()
        )
        found.append(Mark(max(int(plan.first[of[0]]), plan.exact), digest))
    return found


def of_mark(mark: Mark) -> str:
    """What a gateway may give as `cache_salt` of a request whose first mark this is: the request
    is salted whole, and its prompt need not be hashed a second time."""
    return f"{PREFIX}{mark.digest.hex()}"


def keep_out(request: Any) -> None:
    """Nobody's own salt may be one of ours."""
    if (request.cache_salt or "").startswith(PREFIX):
        whole(request, "foreign")


def mix(request: Any, marked: Sequence[Mark], block_tokens: int) -> bool:
    """Salts the request's block hashes; False if it had to salt the whole request instead."""
    hashes = request.block_hashes
    if (
        not hashes
        or len(hashes) != request.num_tokens // block_tokens
        or not all(isinstance(h, bytes) for h in hashes)
        or not callable(getattr(request, "update_block_hashes", None))
    ):
        everything = hashlib.sha256(b"".join(mark.digest for mark in marked)).hexdigest()
        whole(request, f"inject:{everything}")
        return False
    count = len(hashes)
    for mark in marked:
        # A token after the last full block: that block's hash will be chained from the last one's.
        at = min(mark.first // block_tokens, count - 1)
        old = hashes[at]
        hashes[at] = hashlib.sha256(mark.digest + old).digest()[: len(old)]
        if at + 1 < count:
            del hashes[at + 1 :]
            request.update_block_hashes()
    return True


def whole(request: Any, salt: str) -> None:
    """Gives the request a prefix cache of its own, shared only under the same salt."""
    old = request.cache_salt
    request.cache_salt = f"{PREFIX}{salt}" + (f":{old}" if old else "")
    request.block_hashes.clear()
    request.update_block_hashes()
