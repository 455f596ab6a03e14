// How clients name models.
#ifndef INFERSCALE_SERVER_MODEL_ID_H_
#define INFERSCALE_SERVER_MODEL_ID_H_

#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/engine.h"

namespace inferscale {

// Without the spaces that names of files have and no client expects.
std::string ModelId(std::string name);
std::string ModelId(const ModelInfo& info);

// kNotFound unless a request asks for this model, for "inferscale", which is any, or for none.
Status CheckModel(std::string_view asked, std::string_view model);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_MODEL_ID_H_
