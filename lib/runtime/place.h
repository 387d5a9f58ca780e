// Puts a model on its devices: one of them, several by layers, some of it on the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "runtime/layer_plan.h"
#include "runtime/placement_options.h"

namespace llm {

struct PlaceRequest {
  const PlacementOptions& wish;
  ModelLayers layers = {};
  std::int64_t context = 0;                                       ///< that the model was trained with
  std::function<Graph(Bucket)> graph = {};                        ///< of the model
  std::function<std::unique_ptr<Backend>(int)> make_device = {};  ///< by its number
  std::function<std::unique_ptr<Backend>()> make_host = {};
};

struct Placed {
  std::unique_ptr<Backend> backend;  ///< of the whole model
  std::string text = {};  ///< "GPU: 20 of 33 layers, 7.1 GiB; CPU: the rest"; empty where nothing was to choose
  int devices = 1;        ///< that have a part of it
  bool has_host_part = false;
};

/// `preferred` is the backend of the preferred device; others are made when they are needed. Throws ErrorKind::Memory
/// if not one layer fits that may stay with the host.
Placed place(std::unique_ptr<Backend> preferred, const PlaceRequest&);

}  // namespace llm
