"""Makes a model folder for vLLM from a GGUF file of SmolLM2.

    python3 scripts/gguf_to_vllm.py MODEL.gguf FOLDER

The weights are those of the file, dequantised to bf16, so that the embedded engine and vLLM serve
the same model. Run with the Python of scripts/setup_vllm.sh.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

SPECIAL = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    logging.disable_progress_bar()
    options = {"gguf_file": source.name}
    try:
        from transformers import GgufConfig

        options_of_weights = {**options, "quantization_config": GgufConfig(dequantize=True)}
    except ImportError:  # an older release, which always dequantises
        options_of_weights = options
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, dtype=torch.bfloat16, **options_of_weights
    )
    tokenizer = AutoTokenizer.from_pretrained(source.parent, **options)
    for text, token in SPECIAL.items():
        if tokenizer.encode(text) != [token]:
            sys.exit(f"{source}: {text} is {tokenizer.encode(text)}, not {token}")
    if not tokenizer.chat_template:
        sys.exit(f"{source} has no chat template")
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    main()
