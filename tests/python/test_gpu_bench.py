"""bench/gpu: its ctypes structs are those of plugin.h, and a dry run finds planted mistakes."""

import ctypes
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda_plugin as abi
import pytest
from cases import ALIGN, HEADER, LLAMA_8B, MODELS, PAGE, QWEN_8B, Case, transfer_cases
from results import compare

STRUCTS = (
    abi.PluginCache,
    abi.PluginRopes,
    abi.PluginSpan,
    abi.PluginTransfer,
    abi.PluginSearch,
    abi.PluginTopK,
    abi.PluginDeviceInfo,
    abi.Plugin,
)


def test_structs_are_those_of_the_header(root: Path, tmp_path: Path) -> None:
    lines = ["#include <cstdio>", '#include "ops/cuda/plugin.h"', "using namespace inferscale;"]
    lines += ["using namespace inferscale::cuda;", "int main() {"]
    ours = [f"kPluginAbi {abi.ABI}", f"kMaxRopes {abi.MAX_ROPES}"]
    lines += [f'std::printf("{name} %d\\n", int({name}));' for name in ("kPluginAbi", "kMaxRopes")]
    for struct in STRUCTS:
        name = struct.__name__
        lines.append(f'std::printf("{name} %zu\\n", sizeof({name}));')
        ours.append(f"{name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            lines.append(f'std::printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
            ours.append(f"{name}.{field} {getattr(struct, field).offset}")
    source, program = tmp_path / "offsets.cc", tmp_path / "offsets"
    source.write_text("\n".join([*lines, "}"]))
    subprocess.run(["g++", "-std=c++20", f"-I{root}/src", source, "-o", program], check=True)
    theirs = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert theirs.splitlines() == ours


@pytest.mark.parametrize("quantised", [False, True])
def test_records_lie_apart_and_aligned(quantised: bool) -> None:
    for plain in transfer_cases(quick=False):
        case = Case(plain.model, plain.tokens, plain.facts, quantised)
        end = token = 0
        for at, place, tokens in case.records():
            assert at >= end
            assert at % ALIGN == 0
            assert at % (case.model.row * case.record_size) == 0
            assert place == token
            end, token = at + case.record_bytes(tokens), token + tokens
        assert token == case.tokens
        assert case.source_bytes >= end
        assert max(case.lengths) - min(case.lengths) <= 1
        assert (case.pages - 1) * PAGE < HEADER + case.tokens <= case.pages * PAGE


def test_bytes_are_those_read_and_written() -> None:
    assert Case(LLAMA_8B, 1024, 8).moved == 2 * 1024 * 128 * 1024
    assert Case(QWEN_8B, 512, 1).moved == 2 * 512 * 144 * 1024
    assert Case(LLAMA_8B, 1024, 8, cache_size=1).moved == 1024 * (128 + 64) * 1024
    # int8: half the elements' bytes, and a float for each head, token and layer.
    scales = 1024 * 32 * 8 * 4
    assert Case(LLAMA_8B, 1024, 8, quantised=True).moved == 1024 * (128 + 64) * 1024 + scales


@pytest.mark.parametrize("model", MODELS)
def test_variants_are_more_than_the_cache_holds(model: Any) -> None:
    for tokens in (128, 16384):
        case = Case(model, tokens, 8)
        assert case.variants(60 << 20) * case.moved > 4 * (60 << 20)
        assert case.variants(60 << 20) >= 2


def row(name: str, us: float | None) -> dict[str, Any]:
    result: dict[str, Any] = {"op": "inject", "row": name, "model": "m", "tokens": 1, "facts": 1}
    result |= {"bytes": 2_000_000, "ok": us is not None}
    return result | ({"error": "K of layer 0: wrong"} if us is None else {"us": us})


def test_ours_is_compared_with_the_best_peer_that_is_right() -> None:
    rows = {r["row"]: r for r in (row("copy", 8.0), row("ours_off", 9.0), row("ours", 10.0))}
    rows |= {r["row"]: r for r in (row("lmcache", None), row("flashinfer", 25.0))}
    rows["torch"] = row("torch", 300.0)
    compare(rows)
    assert rows["ours"]["copy_fraction"] == 0.8
    assert rows["ours"]["over_copy_us"] == 2.0
    assert rows["ours"]["best_peer"] == "flashinfer"
    assert rows["ours"]["best_peer_ratio"] == 2.5
    assert rows["ours"]["torch_ratio"] == 30.0
    assert "copy_fraction" not in rows["lmcache"]
    assert "best_peer_ratio" not in rows["ours_off"]


def test_report_shows_wrong_rows_as_wrong(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from report import write_report

    rows = {r["row"]: r for r in (row("copy", 8.0), row("ours", 10.0), row("lmcache", None))}
    compare(rows)
    document = {"card": "C", "driver": "1", "torch": "2", "plugin": "p", "commit": "c" * 40}
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document | {"date": "2000-01-01", "rows": list(rows.values())}))
    write_report(path)
    text = (tmp_path / "x.md").read_text()
    assert "| m | 1 | 1 | 2 | 8.0 | 10.0 (80 %) | wrong |" in text
    assert "- inject, LMCache (model m, tokens 1, facts 1): K of layer 0: wrong" in text
    assert (tmp_path / "x.svg").read_text().rstrip().endswith("</svg>")


def dry_run(tmp_path: Path) -> dict[str, dict[str, Any]]:
    pytest.importorskip("torch")
    import bench_ops

    bench_ops.main(["--dry", "--out", str(tmp_path)])
    (result,) = tmp_path.glob("*-ops.json")
    rows = json.loads(result.read_text())["rows"]
    return {f"{r['op']} {r['row']}": r for r in rows}


def test_dry_run_is_right(tmp_path: Path) -> None:
    rows = dry_run(tmp_path)
    assert len(rows) == 15
    assert [name for name, r in rows.items() if not r["ok"]] == []


def shift_position(transfer: abi.PluginTransfer) -> None:
    transfer.spans[1].position += 1


def shift_place(transfer: abi.PluginTransfer) -> None:
    transfer.spans[0].page_token -= 1


def swap_pages(transfer: abi.PluginTransfer) -> None:
    transfer.pages[3], transfer.pages[4] = transfer.pages[4], transfer.pages[3]


def swap_keys_and_values(transfer: abi.PluginTransfer) -> None:
    cache = transfer.cache.contents
    cache.k_base, cache.v_base = cache.v_base, cache.k_base


def forget_a_token(transfer: abi.PluginTransfer) -> None:
    transfer.spans[2].tokens -= 1


@pytest.mark.parametrize(
    "mistake",
    [shift_position, shift_place, swap_pages, swap_keys_and_values, forget_a_token],
)
def test_a_planted_mistake_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: Callable[[abi.PluginTransfer], None]
) -> None:
    pytest.importorskip("torch")
    import transfers

    right = transfers.Ours._make_transfer

    def wrong(self: Any, variant: int) -> abi.PluginTransfer:
        transfer = right(self, variant)
        if variant == self._request.variants - 1:
            mistake(transfer)
        return transfer

    monkeypatch.setattr(transfers.Ours, "_make_transfer", wrong)
    rows = dry_run(tmp_path)
    for op in ("inject", "inject_i8", "inject_f8", "capture"):
        assert not rows[f"{op} ours"]["ok"]
        assert "us" not in rows[f"{op} ours"]
    assert rows["inject torch"]["ok"]
    # Without rotation, positions do not matter.
    assert rows["inject ours_off"]["ok"] == (mistake is shift_position)
