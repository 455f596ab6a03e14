"""InferScale: memory for LLM serving. `inferscale.vllm` is the connector for vLLM."""
