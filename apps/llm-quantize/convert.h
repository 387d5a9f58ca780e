// A tensor on its way from one storage type to another: decoded, quantised and handed on in ranges of rows, by all
// threads.
#pragma once

#include <functional>
#include <vector>

#include "gguf/file.h"
#include "gguf/writer.h"

namespace llm::quantization {

/// The data of `tensor` in another type. `importance` gives [width, matrices] or nothing, when it is needed: those of a
/// whole model may be large. `file` must outlive the result.
/// Throws ErrorKind::Numeric naming the tensor and the row for values that are not finite or that the type cannot hold.
TensorSource converted(const GgufFile& file, const TensorInfo& tensor, DType to,
                       std::function<std::vector<float>()> importance, int threads);

}  // namespace llm::quantization
