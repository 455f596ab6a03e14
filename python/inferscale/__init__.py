"""InferScale: memory for LLM serving.

`inferscale.client` asks the gateway; `inferscale.vllm` is the connector for vLLM.
"""
