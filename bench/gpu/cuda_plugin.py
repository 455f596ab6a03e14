"""The structs of src/ops/cuda/plugin.h for ctypes, and how libinferscale_cuda.so is opened.

tests/python/test_gpu_bench.py compares every offset with what the C++ compiler makes of the header.
"""

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

ABI = 2
MAX_ROPES = 4
# kv/shape.h and kv/rope.h
F32, F16, BF16, I8, F8E4M3 = range(5)
NEOX = 1
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3


class PluginCache(Structure):
    _fields_ = (
        ("k_base", c_void_p),  # these two arrays are in device memory too
        ("v_base", c_void_p),
        ("k_page", c_int64),
        ("k_token", c_int64),
        ("k_head", c_int64),
        ("v_page", c_int64),
        ("v_token", c_int64),
        ("v_head", c_int64),
        ("page_tokens", c_uint32),
        ("layers", c_uint32),
        ("heads", c_uint32),
        ("dim", c_uint32),
        ("dtype", c_uint8),
        ("k_scale", c_void_p),
        ("v_scale", c_void_p),
        ("scale_heads", c_uint32),
        ("record_layer", c_void_p),
        ("record_layers", c_uint32),
    )


class PluginRopes(Structure):
    _fields_ = (
        ("table", c_void_p * MAX_ROPES),
        ("rotary_dims", c_uint32 * MAX_ROPES),
        ("layer_table", POINTER(c_uint8)),
        ("tables", c_uint8),
        ("kind", c_uint8),
    )


class PluginSpan(Structure):
    _fields_ = (
        ("record", c_void_p),
        ("record_tokens", c_uint32),
        ("first", c_uint32),
        ("tokens", c_uint32),
        ("position", c_int32),
        ("page_token", c_uint32),
    )


class PluginTransfer(Structure):
    _fields_ = (
        ("cache", POINTER(PluginCache)),
        ("ropes", POINTER(PluginRopes)),
        ("key_scales", c_void_p),
        ("spans", POINTER(PluginSpan)),
        ("span_count", c_uint32),
        ("pages", POINTER(c_int32)),
        ("page_count", c_uint32),
        ("record_dtype", c_uint8),
    )


class PluginSearch(Structure):
    _fields_ = (
        ("rows", c_void_p),
        ("query", c_void_p),
        ("allowed", c_void_p),
        ("count", c_uint32),
    )


class PluginTopK(Structure):
    _fields_ = (
        ("searches", POINTER(PluginSearch)),
        ("search_count", c_uint32),
        ("dims", c_uint32),
        ("k", c_uint32),
        ("row_dtype", c_uint8),
        ("out_rows", c_void_p),
        ("out_scores", c_void_p),
        ("workspace", c_void_p),
    )


class PluginDeviceInfo(Structure):
    _fields_ = (
        ("name", c_char * 256),
        ("memory_bytes", c_uint64),
        ("multiprocessors", c_uint32),
        ("l2_bytes", c_uint32),
        ("major", c_uint32),
        ("minor", c_uint32),
    )


class Plugin(Structure):
    _fields_ = (
        ("abi", c_uint32),
        ("build", c_char_p),
        ("error_string", CFUNCTYPE(c_char_p, c_int)),
        ("device_count", CFUNCTYPE(c_int, POINTER(c_int))),
        ("device_info", CFUNCTYPE(c_int, c_int, POINTER(PluginDeviceInfo))),
        ("set_device", CFUNCTYPE(c_int, c_int)),
        ("alloc", CFUNCTYPE(c_int, c_uint64, POINTER(c_void_p))),
        ("free", CFUNCTYPE(c_int, c_void_p)),
        ("alloc_pinned", CFUNCTYPE(c_int, c_uint64, POINTER(c_void_p))),
        ("free_pinned", CFUNCTYPE(c_int, c_void_p)),
        ("copy_async", CFUNCTYPE(c_int, c_void_p, c_void_p, c_uint64, c_int, c_void_p)),
        ("fill_async", CFUNCTYPE(c_int, c_void_p, c_int, c_uint64, c_void_p)),
        ("stream_create", CFUNCTYPE(c_int, POINTER(c_void_p))),
        ("stream_destroy", CFUNCTYPE(c_int, c_void_p)),
        ("stream_synchronize", CFUNCTYPE(c_int, c_void_p)),
        ("event_create", CFUNCTYPE(c_int, POINTER(c_void_p))),
        ("event_destroy", CFUNCTYPE(c_int, c_void_p)),
        ("event_record", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("event_query", CFUNCTYPE(c_int, c_void_p, POINTER(c_int))),
        ("stream_wait", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("inject", CFUNCTYPE(c_int, POINTER(PluginTransfer), c_void_p)),
        ("capture", CFUNCTYPE(c_int, POINTER(PluginTransfer), c_void_p)),
        ("topk_workspace", CFUNCTYPE(c_uint64, POINTER(PluginTopK))),
        ("topk", CFUNCTYPE(c_int, POINTER(PluginTopK), c_void_p)),
    )


class Ops:
    """The plug-in's calls that are measured. Every call raises on an error code."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        library.inferscale_cuda_plugin.restype = POINTER(Plugin)
        library.inferscale_cuda_plugin.argtypes = [c_uint32]
        entry = library.inferscale_cuda_plugin(ABI)
        if not entry:
            raise RuntimeError(f"{path} does not speak version {ABI} of the plug-in's interface")
        self._plugin: Plugin = entry.contents
        self.build = str(self._plugin.build.decode())
        self._check(self._plugin.set_device(0))

    def _check(self, code: int) -> None:
        if code != 0:
            raise RuntimeError(f"{code}: {self._plugin.error_string(code).decode()}")

    def inject(self, transfer: PluginTransfer, stream: int) -> None:
        self._check(self._plugin.inject(transfer, stream))

    def capture(self, transfer: PluginTransfer, stream: int) -> None:
        self._check(self._plugin.capture(transfer, stream))

    def topk_workspace(self, search: PluginTopK) -> int:
        return int(self._plugin.topk_workspace(search))

    def topk(self, search: PluginTopK, stream: int) -> None:
        self._check(self._plugin.topk(search, stream))

    def copy(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        self._check(self._plugin.copy_async(to, source, size, kind, stream))

    def alloc_pinned(self, size: int) -> int:
        out = c_void_p()
        self._check(self._plugin.alloc_pinned(size, out))
        return out.value or 0

    def free_pinned(self, memory: int) -> None:
        self._check(self._plugin.free_pinned(memory))
