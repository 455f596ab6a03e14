"""What the gateway must know of the model's tokenizer, see docs/vllm_protocol.md."""

from __future__ import annotations

from typing import Any

from vllm.logger import init_logger

logger = init_logger(__name__)


def tokenizer_facts(model_config: Any) -> dict[str, Any] | None:
    """None if the engine has no tokenizer, or one that is not of Hugging Face's kind."""
    if model_config.skip_tokenizer_init:
        return None
    try:
        from vllm.tokenizers import cached_tokenizer_from_config

        tokenizer = cached_tokenizer_from_config(model_config)
        first = tokenizer.encode("")
        return {
            "bos": first[0] if first and first[0] == tokenizer.bos_token_id else None,
            "special": {str(t): int(i) for i, t in tokenizer.added_tokens_decoder.items()},
            "chat_template": _template(tokenizer.chat_template),
        }
    except Exception as error:  # whatever a tokenizer of a kind that we don't know may raise
        logger.warning("InferScale can't describe the tokenizer: %s", error)
        return None


def _template(templates: object) -> str:
    if isinstance(templates, dict):
        templates = templates.get("default")
    return templates if isinstance(templates, str) else ""
