"""The connector's settings: `kv_connector_extra_config` of vLLM's --kv-transfer-config."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Settings:
    """Sizes are bytes of each worker; docs/vllm.md says more."""

    dir: str  # the store: kv/ in the data directory
    device_bytes: int = 2 * GIB  # records on the device; what vLLM leaves free must hold them
    host_bytes: int = 4 * GIB  # records in host memory, pinned where there is a device
    capture_bytes: int = 256 * MIB  # records on their way to the disk
    tenant_device_bytes: int = 0  # 0: no limit
    tenant_host_bytes: int = 0
    disk_bytes: int = 0
    tenant_disk_bytes: int = 0
    patience_ms: int = 200  # how long a request waits for records on the disk
    plugin: str | None = None  # path of libinferscale_cuda.so
    model_id: str | None = None  # stands for the weights in the fingerprint

    @classmethod
    def of(cls, vllm_config: Any) -> Settings:
        extra = dict(vllm_config.kv_transfer_config.kv_connector_extra_config or {})
        known = {field.name: field for field in fields(cls)}
        if unknown := sorted(set(extra) - set(known)):
            raise ValueError(f"kv_connector_extra_config: unknown {', '.join(unknown)}")
        if not extra.get("dir"):
            raise ValueError("kv_connector_extra_config: dir, the folder of the store, is missing")
        for name, value in extra.items():
            if "int" in known[name].type and (type(value) is not int or value < 0):
                raise ValueError(f"kv_connector_extra_config: {name} is {value!r}, not a number")
        return cls(**extra)
