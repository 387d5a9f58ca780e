// Models on backends that draw tokens themselves.
#pragma once

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "placed.h"

namespace llm::test {

/// Backends that draw, and two such devices that have half of a model each.
inline constexpr std::array kDrawing{"reference", "two devices", "cuda"};

inline LoadOptions drawing_options(const std::filesystem::path& path, const std::string& backend) {
  LoadOptions o{.path = path, .backend = backend, .threads = 1, .isa = "", .bytes_per_thread = 0, .progress = {}};
  if (backend != "two devices") return o;
  o.backend = "device";
  o.host = "reference";
  o.placement.devices = {0, 1};
  o.placement.split = PlacementOptions::Split::Always;
  o.placement.shares = {1, 1};
  o.backends = [](std::string_view name, const BackendOptions& options) -> std::unique_ptr<Backend> {
    if (name != "device") return make_backend(name, options);
    const std::string memory = "CUDA" + std::to_string(options.device);
    auto made = std::make_unique<Device>(make_backend("reference", options), memory, kPlenty);
    made->most_tokens = 1024;
    return made;
  };
  return o;
}

/// Null without a GPU for it.
inline std::unique_ptr<Model> load_drawing(const TempDir& folder, const TinyFile& file, const std::string& backend) {
  const auto path = folder / "model.gguf";
  file.write(path);
  Warnings warnings;
  try {
    auto model = Model::load(drawing_options(path, backend), warnings);
    if (backend == "two devices") REQUIRE(contains(model->backend().name(), "2 x device"));
    return model;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Device) throw;
    std::printf("skipped: %s\n", e.what());
    return nullptr;
  }
}

}  // namespace llm::test
