"""What the lines of a result say about each other."""

from typing import Any

Result = dict[str, Any]

# What ours is compared with; not the ceiling, and not ours with a part left out.
PEERS = ("lmcache", "flashinfer", "torch")


def compare(results: dict[str, Result]) -> None:
    """Adds how each row stands to the copy, and how ours stands to the peers."""
    right = {name: result for name, result in results.items() if result["ok"]}
    if "copy" in right:
        for result in right.values():
            copy_us = right["copy"]["us"]
            result["copy_fraction"] = round(copy_us / result["us"], 4)
            result["over_copy_us"] = round(result["us"] - copy_us, 2)
    peers = {name: right[name]["us"] for name in PEERS if name in right}
    if "ours" in right and peers:
        ours = right["ours"]
        ours["best_peer"] = min(peers, key=peers.__getitem__)
        ours["best_peer_ratio"] = round(min(peers.values()) / ours["us"], 3)
        if "torch" in peers:
            ours["torch_ratio"] = round(peers["torch"] / ours["us"], 2)


def summary(results: list[Result]) -> str:
    """One line for the log."""
    first = results[0]
    keys = ("op", "model", "tokens", "facts", "searches", "count")
    name = " ".join(str(first[key]) for key in keys if key in first)
    parts = []
    for result in results:
        if not result["ok"]:
            parts.append(f"{result['row']} WRONG: {result['error']}")
        else:
            share = f" {result['copy_fraction']:.1%}" if "copy_fraction" in result else ""
            parts.append(f"{result['row']} {result['us']:.1f}{share}")
    return f"{name} ({first['bytes'] / 1e6:.1f} MB): " + " | ".join(parts)
