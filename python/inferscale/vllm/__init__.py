"""The KV connector that puts stored facts' KV into vLLM; docs/vllm.md says how to use it."""

NAME = "InferScaleConnector"


def register() -> None:
    """vLLM's plug-in entry point: makes the connector known by its name alone."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    if NAME not in KVConnectorFactory._registry:
        KVConnectorFactory.register_connector(NAME, "inferscale.vllm.connector", NAME)
