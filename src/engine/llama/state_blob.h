// The bytes of one sequence's state as llama.cpp's KV caches write and read them
// (llama_state_seq_get_data, llama_state_seq_set_data). Little-endian, packed:
//
//   u32 magic   i32 sequence            ignored when read
//   for each of the model's caches:
//     u32 streams                       1 for a unified cache, else the context's n_seq_max
//     for each stream: u32 rows; if rows > 0:
//       for each row: i32 position  u32 count = 1  i32 sequence
//       u32 values_transposed   u32 layers
//       [u32 key_rotation  u32 value_rotation]   from state version 4 on
//       for each layer: i32 type  u64 row_bytes  keys[rows][row_bytes]
//       for each layer: i32 type  u64 row_bytes  values[rows][row_bytes]
//         or, transposed (a context without flash attention):
//                       i32 type  u32 element_bytes  u32 dims  values[dims][rows][element_bytes]
//
// A row is one token: the heads one after another. Rows stand in the order of the cache's cells,
// which need not be the order of positions. All rows of a sequence are in one stream.
//
// Most models have one cache. A model with sliding windows has two: first that of its layers that
// see everything, then that of its layers with a window, each with its layers in their order. The
// second has rows of its own: those that left the window are not written, and may be left out when
// a sequence is read. Rotated keys (quantised caches) are not supported.
#ifndef INFERSCALE_ENGINE_LLAMA_STATE_BLOB_H_
#define INFERSCALE_ENGINE_LLAMA_STATE_BLOB_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "kv/shape.h"
#include "ops/cache_layout.h"

namespace inferscale {

// What depends on the context, not on the model.
struct StateForm {
  uint32_t streams = 1;
  bool transposed_values = false;

  bool operator==(const StateForm&) const = default;
};

// Where one cache's rows lie in a blob.
struct StateRows {
  StateForm form;
  std::vector<int32_t> positions;  // one per row
  uint32_t layers = 0;
  Dtype dtype = Dtype::kF16;
  size_t k_row_bytes = 0;
  size_t v_row_bytes = 0;
  std::vector<std::byte*> k;  // [layer], the first row
  std::vector<std::byte*> v;  // if transposed: the first dim, of all rows

  // As a cache of `shape`'s heads, one slot per row, with other bases: those of all the model's
  // layers (ModelKv::Place), and rows of values where they are transposed here.
  CacheLayout Layout(const KvShape& shape, std::span<std::byte* const> k_base,
                     std::span<std::byte* const> v_base) const;
};

// What is to be written of one cache; `shape` gives its layers and its dtype.
struct StatePart {
  KvShape shape;
  std::vector<int32_t> positions;  // not empty
};

size_t StateBlobSize(std::span<const StatePart> parts, const StateForm& form);

// Writes all but the rows' bytes into `blob`, which has StateBlobSize bytes, and says for every
// part where those go.
std::vector<StateRows> WriteStateBlob(std::span<const StatePart> parts, const StateForm& form,
                                      MutableByteSpan blob);

// Reads the blob of a model with `caches` caches. kCorrupt says what is wrong with it, kUnsupported
// which feature it has. A cache without the sequence gives no rows and no layers. The result points
// into `blob` and is only to be read.
Result<std::vector<StateRows>> ParseStateBlob(ByteSpan blob, size_t caches);

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_STATE_BLOB_H_
