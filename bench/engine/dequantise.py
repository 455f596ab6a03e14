"""The weights of a GGUF as f16: the same model, without what an engine rounds for few bits.

    python bench/engine/dequantise.py FROM.gguf TO.gguf

Norms and other vectors stay f32, as libllama wants them.
"""

from __future__ import annotations

import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
from gguf.constants import Keys
from gguf.quants import dequantize

# The writer makes these itself.
_OWN = {Keys.General.ARCHITECTURE, Keys.General.FILE_TYPE, Keys.General.QUANTIZATION_VERSION}


def main(source: str, target: str) -> None:
    reader = GGUFReader(source)
    architecture = reader.get_field(Keys.General.ARCHITECTURE)
    assert architecture is not None
    writer = GGUFWriter(target, architecture.contents())
    for field in reader.fields.values():
        if field.name not in _OWN and not field.name.startswith("GGUF."):
            kind = field.types[0]
            element = field.types[-1] if kind == GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, element)
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    for tensor in reader.tensors:
        values = tensor.data
        if tensor.tensor_type not in (GGMLQuantizationType.F32, GGMLQuantizationType.F16):
            values = dequantize(values, tensor.tensor_type)
        writer.add_tensor(
            tensor.name, values.astype(np.float32 if values.ndim == 1 else np.float16)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
