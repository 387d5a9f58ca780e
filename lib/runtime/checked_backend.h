// A backend that runs every step twice, on the reference and on the tested one, and stops at the first node whose
// values diverge: what LLM_RUN_CHECK=1 turns on. Slow; for finding the kernel or the weight behind wrong text.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace llm {

/// Executables throw ErrorKind::Internal naming the first value whose root-mean-square difference from the reference
/// exceeds 1e-4 of the reference's root-mean-square.
std::unique_ptr<Backend> make_checked_backend(std::unique_ptr<Backend> tested, std::unique_ptr<Backend> reference);

}  // namespace llm
