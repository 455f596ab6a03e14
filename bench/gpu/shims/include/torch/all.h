// LMCache's kernels include all of torch's C++ front end and use its tensors only.
#include <torch/types.h>
