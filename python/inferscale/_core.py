"""InferScale's C interface, include/inferscale/inferscale.h, for Python.

The classes are handles: close them (in the order that the header asks for), nothing else does. Keys
and fingerprints are 16 bytes; streams and device addresses are integers. What a function refuses is
a CoreError. Importing this loads nothing: the library is opened by the first call.
"""

from __future__ import annotations

import ctypes
import functools
import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

ABI_VERSION = 1
KEY_BYTES = 16
LIBRARY = "libinferscale.so"


class Code(IntEnum):
    OK = 0
    INVALID = 1
    NOT_FOUND = 2
    CONFLICT = 3
    CORRUPT = 4
    TRANSIENT = 5
    EXHAUSTED = 6
    UNSUPPORTED = 7
    CANCELLED = 8
    INTERNAL = 9
    PENDING = 100


class Dtype(IntEnum):
    F32 = 0
    F16 = 1
    BF16 = 2
    F8_E4M3 = 4  # of caches only


class CoreError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Shape(NamedTuple):
    """The KV of one token in one rank's records."""

    layers: int
    kv_heads: int
    dim: int
    dtype: Dtype


class Owner(NamedTuple):
    """Whose records, and of which model."""

    tenant: str
    fingerprint: bytes
    shape: Shape


class _Error(ctypes.Structure):
    _fields_ = (("code", ctypes.c_int32), ("message", ctypes.c_char * 508))


class _Key(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_uint8 * 16),)


class _Field(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("bytes", ctypes.c_uint64))


class _Shape(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("layers", "kv_heads", "dim", "dtype"))


class _Owner(ctypes.Structure):
    _fields_ = (("tenant", ctypes.c_char_p), ("fingerprint", _Key), ("shape", _Shape))


class _StoreOptions(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("dir", ctypes.c_char_p),
        ("host_bytes", ctypes.c_uint64),
        ("tenant_host_bytes", ctypes.c_uint64),
        ("disk_bytes", ctypes.c_uint64),
        ("tenant_disk_bytes", ctypes.c_uint64),
        ("device", ctypes.c_void_p),
    )


# Structs of which there are many at once are rows of arrays.
_CLAIM = np.dtype(
    [("key", "V16"), ("record_token", "u4"), ("tokens", "u4"), ("expected", "u8")], align=True
)
_INJECT_SPAN = np.dtype(
    [
        *(("lease", "u8"), ("record", "u4"), ("record_token", "u4"), ("tokens", "u4")),
        *(("position", "i4"), ("page_token", "u4")),
    ],
    align=True,
)


class _TierOptions(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("device_bytes", ctypes.c_uint64),
        ("tenant_device_bytes", ctypes.c_uint64),
        ("capture_bytes", ctypes.c_uint64),
    )


STATS = (
    *("device_bytes", "device_budget", "device_pinned_bytes", "device_hits", "device_loads"),
    *("device_loaded_bytes", "device_evictions"),
    *("host_bytes", "host_budget", "host_pinned_bytes", "host_hits", "host_evictions"),
    *("disk_reads", "disk_bytes", "records", "corrupt_records"),
    *("captures_stored", "captures_failed", "captures_waiting", "capture_bytes"),
    "lease_wait_us",
)


class _Stats(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in STATS),
    )


class _Strides(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("page", "token", "head"))


class _CacheSpec(ctypes.Structure):
    _fields_ = (
        *(
            (name, ctypes.c_uint32)
            for name in ("size", "layers", "heads", "dim", "page_tokens", "pages", "dtype")
        ),
        ("scale_heads", ctypes.c_uint32),
        ("k_base", ctypes.c_void_p),
        ("v_base", ctypes.c_void_p),
        ("k", _Strides),
        ("v", _Strides),
        ("k_scale", ctypes.c_void_p),
        ("v_scale", ctypes.c_void_p),
        ("record_layer", ctypes.c_void_p),
        ("record_layers", ctypes.c_uint32),
        ("rope_tables", ctypes.c_uint32),
        ("rope_kind", ctypes.c_uint32),
        ("positions", ctypes.c_uint32),
        ("rotary_dims", ctypes.c_void_p),
        ("rope", ctypes.c_void_p),
        ("layer_rope", ctypes.c_void_p),
    )


class _CaptureSpan(ctypes.Structure):
    _fields_ = (
        ("capture", ctypes.c_void_p),
        ("record_token", ctypes.c_uint32),
        ("tokens", ctypes.c_uint32),
        ("position", ctypes.c_int32),
        ("page_token", ctypes.c_uint32),
    )


_pointer, _u32, _i32, _u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint64
_stream = ctypes.c_ssize_t
# Arguments before the last one, which is the error; all return a code.
_CHECKED: dict[str, tuple[Any, ...]] = {
    "device_open": (_i32, ctypes.c_char_p, _pointer),
    "store_open": (_pointer, _pointer),
    "store_verify": (_pointer, _pointer, _pointer, _u32, _pointer),
    "store_erase": (_pointer, _pointer, _u32),
    "tier_open": (_pointer, _pointer, _pointer, _pointer),
    "tier_flush": (_pointer,),
    "tier_stats": (_pointer, _pointer),
    "lease_open": (_pointer, _pointer, _pointer, _u32, _pointer),
    "lease_poll": (_pointer, _pointer),
    "cache_open": (_pointer, _pointer, _pointer),
    "inject": (_pointer, _pointer, _u32, _pointer, _u32, _stream),
    "capture_open": (_pointer, _pointer, _pointer, _pointer, _u32, _pointer),
    "capture_spans": (_pointer, _pointer, _u32, _pointer, _u32, _stream),
    "capture_read": (_pointer, _stream, _pointer, _u64),
    "capture_commit": (_pointer, _stream),
}
_CLOSERS: dict[str, tuple[Any, ...]] = {
    "device_close": (_pointer,),
    "store_close": (_pointer,),
    "tier_close": (_pointer,),
    "lease_close": (_pointer,),
    "cache_close": (_pointer,),
    "capture_close": (_pointer, _stream),
}


def _places() -> Iterable[str]:
    """Where the library may be, best first."""
    here = Path(__file__).resolve()
    if named := os.environ.get("INFERSCALE_LIBRARY"):
        yield named
        return
    for path in (here.parent / LIBRARY, here.parents[2] / "build" / LIBRARY):
        if path.is_file():
            yield str(path)
    yield LIBRARY


@functools.cache
def library() -> Any:
    """The opened library; OSError, naming the places, if there is none of this ABI."""
    tried = []
    for place in _places():
        try:
            lib = ctypes.CDLL(place)
        except OSError as error:
            tried.append(f"{place} ({error})")
            continue
        lib.inferscale_abi_version.restype = ctypes.c_uint32
        found = lib.inferscale_abi_version()
        if found != ABI_VERSION:
            raise OSError(f"{place} has ABI version {found}, and this package is for {ABI_VERSION}")
        for name, arguments in _CHECKED.items():
            function = getattr(lib, f"inferscale_{name}")
            function.argtypes, function.restype = (*arguments, _pointer), ctypes.c_int32
        for name, arguments in _CLOSERS.items():
            function = getattr(lib, f"inferscale_{name}")
            function.argtypes, function.restype = arguments, None
        lib.inferscale_version.restype = ctypes.c_char_p
        lib.inferscale_hash.argtypes, lib.inferscale_hash.restype = (_pointer, _u32, _pointer), None
        return lib
    raise OSError(f"{LIBRARY} was not found; set INFERSCALE_LIBRARY. Tried: {'; '.join(tried)}")


def _check(code: int, error: _Error) -> int:
    if code not in (Code.OK, Code.PENDING):
        raise CoreError(code, error.message.decode(errors="replace"))
    return code


def _call(name: str, *arguments: Any) -> int:
    error = _Error()
    function: Callable[..., int] = getattr(library(), f"inferscale_{name}")
    return _check(function(*arguments, ctypes.byref(error)), error)


def _open(name: str, *arguments: Any) -> int:
    handle = ctypes.c_void_p()
    _call(name, *arguments, ctypes.byref(handle))
    assert handle.value is not None
    return handle.value


def _key(key: bytes) -> _Key:
    return _Key.from_buffer_copy(key)


def _owner(owner: Owner) -> Any:
    return ctypes.byref(
        _Owner(owner.tenant.encode(), _key(owner.fingerprint), _Shape(*owner.shape))
    )


def version() -> str:
    return str(library().inferscale_version().decode())


def hash128(*fields: bytes) -> bytes:
    """XXH3-128 of a sequence of fields."""
    array_of = (_Field * len(fields))(*(_Field(field, len(field)) for field in fields))
    out = _Key()
    library().inferscale_hash(array_of, len(fields), ctypes.byref(out))
    return bytes(out.bytes)


class _Handle:
    _closer = ""

    def __init__(self, handle: int) -> None:
        self.handle: int | None = handle

    def close(self) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            getattr(library(), f"inferscale_{self._closer}")(handle)


class Device(_Handle):
    _closer = "device_close"

    def __init__(self, ordinal: int, plugin: str | None = None) -> None:
        super().__init__(_open("device_open", ordinal, plugin.encode() if plugin else None))


class Claims(NamedTuple):
    """Prompt tokens [first, first + tokens) are said to be a record's from `record_token` on."""

    keys: bytes  # 16 of each
    record_token: Ints
    first: Ints
    tokens: Ints


class Store(_Handle):
    """The KV store of a data directory."""

    _closer = "store_close"

    def __init__(
        self,
        directory: str,
        *,
        host_bytes: int,
        tenant_host_bytes: int = 0,
        disk_bytes: int = 0,
        tenant_disk_bytes: int = 0,
        device: Device | None = None,
    ) -> None:
        options = _StoreOptions(
            ctypes.sizeof(_StoreOptions),
            os.fsencode(directory),
            host_bytes,
            tenant_host_bytes,
            disk_bytes,
            tenant_disk_bytes,
            device.handle if device else None,
        )
        super().__init__(_open("store_open", ctypes.byref(options)))

    def verify(self, owner: Owner, prompt: Sequence[int], claims: Claims) -> Codes:
        """A code for each claim. Claims must lie inside the prompt."""
        count = len(claims.first)
        codes = np.zeros(count, np.int32)
        if not count:
            return codes
        tokens = array("i", prompt)
        asked = np.empty(count, _CLAIM)
        asked["key"] = np.frombuffer(claims.keys, "V16")
        asked["record_token"], asked["tokens"] = claims.record_token, claims.tokens
        asked["expected"] = tokens.buffer_info()[0] + claims.first * tokens.itemsize
        _call(
            *("store_verify", self.handle, _owner(owner)),
            *(asked.ctypes.data, count, codes.ctypes.data),
        )
        return codes

    def erase(self, keys: Sequence[bytes]) -> None:
        _call("store_erase", self.handle, b"".join(keys), len(keys))


class Tier(_Handle):
    """Records at hand, and the thread that brings them in and takes captured ones to the disk."""

    _closer = "tier_close"

    def __init__(
        self,
        store: Store,
        device: Device | None,
        *,
        device_bytes: int,
        tenant_device_bytes: int = 0,
        capture_bytes: int,
    ) -> None:
        options = _TierOptions(
            ctypes.sizeof(_TierOptions), device_bytes, tenant_device_bytes, capture_bytes
        )
        super().__init__(
            _open(
                "tier_open",
                store.handle,
                device.handle if device else None,
                ctypes.byref(options),
            )
        )

    def flush(self) -> None:
        _call("tier_flush", self.handle)

    def stats(self) -> dict[str, int]:
        out = _Stats(size=ctypes.sizeof(_Stats))
        _call("tier_stats", self.handle, ctypes.byref(out))
        return {name: getattr(out, name) for name in STATS}


class Lease(_Handle):
    _closer = "lease_close"

    def __init__(self, tier: Tier, owner: Owner, keys: bytes) -> None:
        """`keys`: 16 bytes of each."""
        count = len(keys) // KEY_BYTES
        self._codes = np.zeros(count, np.int32)
        super().__init__(_open("lease_open", tier.handle, _owner(owner), keys, count))

    def poll(self) -> Codes | None:
        """A code for each key, or None while the lease is pending."""
        if _call("lease_poll", self.handle, self._codes.ctypes.data) == Code.PENDING:
            return None
        return self._codes


class Capture(_Handle):
    """A record being captured. It is committed or closed, on a stream."""

    def __init__(self, tier: Tier, owner: Owner, key: bytes, tokens: Sequence[int]) -> None:
        ids = array("i", tokens)
        super().__init__(
            _open(
                "capture_open",
                tier.handle,
                _owner(owner),
                ctypes.byref(_key(key)),
                ids.buffer_info()[0],
                len(ids),
            )
        )

    def read(self, size: int, stream: int = 0) -> bytearray:
        out = bytearray(size)
        buffer = (ctypes.c_char * size).from_buffer(out)
        _call("capture_read", self.handle, stream, buffer, size)
        return out

    def commit(self, stream: int = 0) -> None:
        handle, self.handle = self.handle, None
        _call("capture_commit", handle, stream)

    def close(self, stream: int = 0) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            library().inferscale_capture_close(handle, stream)


class Strides(NamedTuple):
    """In bytes."""

    page: int
    token: int
    head: int


@dataclass(frozen=True, kw_only=True)
class Rope:
    """cos and sin as the engine uses them, fp32: [positions][rotary_dim / 2 of cos, then sin]."""

    rotary_dim: int  # 0: not rotated
    table: memoryview | bytes  # empty where rotary_dim is 0


@dataclass(frozen=True, kw_only=True)
class CacheSpec:
    """One group of layers of an engine's paged cache; see inferscale_cache_spec."""

    k_base: Sequence[int]
    v_base: Sequence[int]
    k: Strides
    v: Strides
    heads: int
    dim: int
    page_tokens: int
    pages: int
    dtype: Dtype
    record_layer: Sequence[int]
    record_layers: int
    ropes: Sequence[Rope]
    layer_rope: Sequence[int]
    positions: int
    interleaved: bool
    k_scale: Sequence[float] = ()
    v_scale: Sequence[float] = ()


class InjectSpans(NamedTuple):
    """Of one lease; a number of each span in each column."""

    lease: Lease
    record: Ints  # of the lease
    record_token: Ints
    tokens: Ints
    position: Ints
    page_token: Ints


class CaptureSpan(NamedTuple):
    capture: Capture
    record_token: int
    tokens: int
    position: int
    page_token: int


class Cache(_Handle):
    _closer = "cache_close"

    def __init__(self, device: Device | None, spec: CacheSpec) -> None:
        layers = len(spec.k_base)
        tables = [ctypes.create_string_buffer(bytes(r.table), len(r.table)) for r in spec.ropes]
        words = functools.partial(array, "I")
        record_layer, layer_rope = words(spec.record_layer), words(spec.layer_rope)
        rotary_dims = words(rope.rotary_dim for rope in spec.ropes)
        k_base, v_base = array("Q", spec.k_base), array("Q", spec.v_base)
        k_scale, v_scale = array("f", spec.k_scale), array("f", spec.v_scale)
        rope = array(
            "Q",
            (
                ctypes.addressof(table) if r.rotary_dim else 0
                for r, table in zip(spec.ropes, tables, strict=True)
            ),
        )

        def address(items: Any) -> int | None:
            return int(items.buffer_info()[0]) if len(items) else None

        c_spec = _CacheSpec(
            size=ctypes.sizeof(_CacheSpec),
            layers=layers,
            heads=spec.heads,
            dim=spec.dim,
            page_tokens=spec.page_tokens,
            pages=spec.pages,
            dtype=spec.dtype,
            scale_heads=len(spec.k_scale) // layers,
            k_base=address(k_base),
            v_base=address(v_base),
            k=_Strides(*spec.k),
            v=_Strides(*spec.v),
            k_scale=address(k_scale),
            v_scale=address(v_scale),
            record_layer=address(record_layer),
            record_layers=spec.record_layers,
            rope_tables=len(spec.ropes),
            rope_kind=2 if spec.interleaved else 1,
            positions=spec.positions,
            rotary_dims=address(rotary_dims),
            rope=address(rope),
            layer_rope=address(layer_rope),
        )
        super().__init__(
            _open("cache_open", device.handle if device else None, ctypes.byref(c_spec))
        )

    def inject(self, spans: Sequence[InjectSpans], pages: Sequence[int], stream: int = 0) -> None:
        rows = np.empty(sum(len(of.record) for of in spans), _INJECT_SPAN)
        at = 0
        for of in spans:
            part = rows[at : at + len(of.record)]
            part["lease"] = of.lease.handle
            for name, column in zip(InjectSpans._fields[1:], of[1:], strict=True):
                part[name] = column
            at += len(part)
        self._move("inject", rows.ctypes.data, len(rows), pages, stream)

    def capture(self, spans: Sequence[CaptureSpan], pages: Sequence[int], stream: int = 0) -> None:
        rows = (_CaptureSpan * len(spans))(*(_CaptureSpan(s[0].handle, *s[1:]) for s in spans))
        self._move("capture_spans", rows, len(spans), pages, stream)

    def _move(self, name: str, rows: Any, count: int, pages: Sequence[int], stream: int) -> None:
        ids = array("i", pages)
        _call(name, self.handle, rows, count, ids.buffer_info()[0], len(ids), stream)
