"""bench/engine/dequantise.py: the same model, but for the type of its weights."""

from pathlib import Path

import numpy as np
import pytest
from dequantise import main
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize


@pytest.mark.parametrize("kind", [GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0])
def test_weights_become_f16_and_the_rest_stays(tmp_path: Path, kind: GGMLQuantizationType) -> None:
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    pick = np.random.default_rng(seed)
    codes = quantize(pick.standard_normal((3, 64), dtype=np.float32), kind)
    norm = pick.standard_normal(64, dtype=np.float32)
    writer = GGUFWriter(tmp_path / "from.gguf", "llama")
    writer.add_context_length(2048)
    writer.add_rope_freq_base(1e6)
    writer.add_token_list(["a", "bé", "c"])
    writer.add_token_scores([0.5, -1.0, 2.0])
    writer.add_chat_template("{{ messages }}")
    writer.add_file_type(3)
    writer.add_tensor("weights", codes, raw_dtype=kind)
    writer.add_tensor("norm", norm)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    main(str(tmp_path / "from.gguf"), str(tmp_path / "to.gguf"))

    before, after = (GGUFReader(tmp_path / name) for name in ("from.gguf", "to.gguf"))
    fields = [
        {name: (field.types, field.contents()) for name, field in one.fields.items()}
        for one in (before, after)
    ]
    assert fields[0].pop("general.file_type")[1] == 3
    assert fields[1].pop("general.file_type")[1] == 1
    assert fields[0] == fields[1]
    weights, plain = after.tensors
    assert (weights.tensor_type, plain.tensor_type) == (
        GGMLQuantizationType.F16,
        GGMLQuantizationType.F32,
    )
    assert np.array_equal(weights.data, dequantize(codes, kind).astype(np.float16))
    assert np.array_equal(plain.data, norm)
