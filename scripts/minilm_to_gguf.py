"""Converts the sentence-transformers model all-MiniLM-L6-v2 (a BERT) to a GGUF file for libllama.

    minilm_to_gguf.py MODEL_DIR OUT.gguf

MODEL_DIR holds config.json, model.safetensors, vocab.txt, tokenizer_config.json and
1_Pooling/config.json, as sentence-transformers saves them. The end of OUT's name chooses the type
of the weight matrices: .f32.gguf, .f16.gguf or .q8_0.gguf. Everything else stays in float.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, cast

import gguf
import numpy as np
from safetensors.numpy import load_file

MATRIX_TYPES = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}
FILE_TYPES = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# Names in the file -> names that libllama looks for. A layer's tensors carry its number.
TOP_TENSORS = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
LAYER_TENSORS = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
# The pooler serves next-sentence prediction; sentence vectors are means over tokens.
UNUSED_TENSORS = ("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias")


def read_json(path: Path) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))


def check_model(model_dir: Path, config: dict[str, Any]) -> None:
    """Refuses what this converter would convert wrongly."""
    expected = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
    for key, value in expected.items():
        if config.get(key, value) != value:
            raise ValueError(f"{model_dir}: {key} is {config[key]!r}, only {value!r} is supported")
    if not read_json(model_dir / "1_Pooling" / "config.json").get("pooling_mode_mean_tokens"):
        raise ValueError(f"{model_dir}: only mean pooling is supported")
    if not read_json(model_dir / "tokenizer_config.json").get("do_lower_case"):
        raise ValueError(f"{model_dir}: only lower-casing tokenizers are supported")


def add_hyperparameters(writer: gguf.GGUFWriter, config: dict[str, Any], kind: str) -> None:
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_file_type(FILE_TYPES[kind])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)


def add_tokenizer(writer: gguf.GGUFWriter, model_dir: Path, config: dict[str, Any]) -> None:
    pieces = (model_dir / "vocab.txt").read_text(encoding="utf-8").split("\n")
    if pieces[-1] == "":
        pieces.pop()
    if len(pieces) != config["vocab_size"]:
        raise ValueError(
            f"{model_dir}: vocab.txt has {len(pieces)} pieces, not {config['vocab_size']}"
        )

    tokens: list[str] = []
    types: list[gguf.TokenType] = []
    for piece in pieces:
        if piece in SPECIAL_TOKENS:
            tokens.append(piece)
            types.append(gguf.TokenType.CONTROL)
            continue
        # libllama marks where a word starts; WordPiece marks where it goes on.
        tokens.append(piece[2:] if piece.startswith("##") else "\u2581" + piece)
        types.append(gguf.TokenType.NORMAL)

    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_pad_token_id(pieces.index("[PAD]"))
    writer.add_unk_token_id(pieces.index("[UNK]"))
    writer.add_bos_token_id(pieces.index("[CLS]"))
    writer.add_sep_token_id(pieces.index("[SEP]"))
    writer.add_mask_token_id(pieces.index("[MASK]"))


def tensor_name(name: str) -> str:
    base, suffix = name.rsplit(".", 1)
    if base in TOP_TENSORS:
        return f"{TOP_TENSORS[base]}.{suffix}"
    parts = base.split(".", 3)  # encoder.layer.<number>.<rest>
    if parts[:2] == ["encoder", "layer"] and len(parts) == 4 and parts[3] in LAYER_TENSORS:
        return f"blk.{int(parts[2])}.{LAYER_TENSORS[parts[3]]}.{suffix}"
    raise ValueError(f"{name}: not a tensor of BERT")


def add_tensors(writer: gguf.GGUFWriter, tensors: dict[str, np.ndarray], kind: str) -> None:
    for name, tensor in tensors.items():
        if name in UNUSED_TENSORS:
            continue
        target = tensor_name(name)
        data = tensor.astype(np.float32)
        # Positions and token types are added, not multiplied: libllama wants them in float.
        is_matrix = data.ndim == 2 and not target.startswith(("position_embd", "token_types"))
        matrix_type = MATRIX_TYPES[kind if is_matrix else "f32"]
        writer.add_tensor(target, gguf.quants.quantize(data, matrix_type), raw_dtype=matrix_type)


def convert(model_dir: Path, out: Path) -> None:
    kind = out.suffixes[-2][1:].lower() if len(out.suffixes) >= 2 else ""
    if out.suffix != ".gguf" or kind not in MATRIX_TYPES:
        raise ValueError(f"{out}: the name must end in .<{'|'.join(MATRIX_TYPES)}>.gguf")
    config = read_json(model_dir / "config.json")
    check_model(model_dir, config)

    partial = out.with_name(out.name + ".part")  # a reader never meets half a file
    writer = gguf.GGUFWriter(partial, "bert")
    add_hyperparameters(writer, config, kind)
    add_tokenizer(writer, model_dir, config)
    add_tensors(writer, load_file(model_dir / "model.safetensors"), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(partial, out)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    try:
        convert(arguments.model_dir, arguments.out)
    except (OSError, KeyError, ValueError) as error:
        print(f"minilm_to_gguf: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
