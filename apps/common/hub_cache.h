// Models by the names that they have on Hugging Face's hub, among the files that other programs have downloaded: the
// hub's own cache and llama.cpp's. Nothing is ever fetched.
#pragma once

#include <string>

namespace llm::app {

/// The file, or first part of a split one, that "USER/REPO" or "USER/REPO:QUANT" means. `file`: its name in the
/// repository; empty: the one of that quantisation, else of Q4_K_M, else of Q8_0, else the first by name. Throws
/// ErrorKind::Usage for what is no such name, ErrorKind::Model saying where it was looked for and what there is.
std::string find_in_caches(const std::string& name, const std::string& file);

/// Whether a file's name is that of a model's weights rather than of what comes beside them (a projector, a matrix of
/// importances, a drafting head), and of a split model the first part.
bool names_model(const std::string& file);

}  // namespace llm::app
