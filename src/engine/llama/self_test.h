// Start-up tests of what injection rests on: that the bytes of a sequence's state are laid out as
// state_blob.h says, and that keys are rotated as the RopeSpec of their layer says.
//
// One token is decoded alone at position 0 and, in another sequence, alone at position p. It sees
// only itself, so all that may differ is the rotation: K(p) = R(p) K(0) on every layer.
#ifndef INFERSCALE_ENGINE_LLAMA_SELF_TEST_H_
#define INFERSCALE_ENGINE_LLAMA_SELF_TEST_H_

#include <llama.h>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/llama/model_info.h"
#include "engine/llama/model_kv.h"
#include "engine/llama/state_blob.h"

namespace inferscale {

struct LlamaSelfTest {
  SelfTest result;
  LayerRopes ropes;  // the model's, and kNone on the layers whose keys don't depend on p
};

// `context` has an F32 cache and at least two sequences; sequences 0 and 1 are used and left
// empty. Fails only if the model can't decode; everything else is a test that did not pass.
Result<LlamaSelfTest> RunSelfTest(llama_context* context, const LlamaModelTraits& traits);

// Decodes one token, reads the state and checks that it is the model's in `dtype` and `form`.
// Leaves sequence 0 empty.
Status ProbeStateLayout(llama_context* context, const ModelKv& kv, Dtype dtype,
                        const StateForm& form);

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_SELF_TEST_H_
