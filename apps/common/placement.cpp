#include "common/placement.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "backend/registry/registry.h"
#include "base/error.h"
#include "common/command_line.h"
#include "common/messages.h"
#include "common/numbers.h"

namespace llm::app {
namespace {

/// For every GPU its name and memory, or why there is none.
std::string list_of_devices() {
  const GpuReport report = look_for_gpus();
  std::string text;
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    const Gpu& gpu = report.gpus[i];
    text += gpu_name(static_cast<int>(i)) + ": " + gpu_text(gpu) + ", " +
            (gpu.why_not.empty() ? bytes_text(free_gpu_memory(i)) + " of " + bytes_text(gpu.memory) + " free"
                                 : "cannot be used: " + gpu.why_not) +
            "\n";
  }
  return report.state == GpuReport::State::Usable ? text : text + "no GPU can be used: " + report.reason + "\n";
}

std::string value_text(int layers) {
  if (layers == Placement::kAuto) return "auto";
  return layers == Placement::kAll ? "all" : std::to_string(layers);
}

/// The option and its value: "--gpu-layers 99".
std::string asked(const Placement& p) { return p.option + " " + value_text(p.gpu_layers); }

[[noreturn]] void contradiction(const std::string& a, const std::string& b) {
  throw Error(ErrorKind::Usage, a + " and " + b + " contradict each other: give one of them");
}

void refuse_contradictions(const Placement& p) {
  const bool named = !p.backend.empty(), gpu = p.backend == "cuda";
  const std::string name = "--backend " + p.backend;
  refuse_contradictions(p.gpus);
  if (named && !gpu && !p.gpus.named.empty()) contradiction(name, "--device " + gpu_name(p.gpus.named.front()));
  if (named && p.gpu_layers != Placement::kAuto && gpu != (p.gpu_layers > 0)) contradiction(name, asked(p));
  for (const TensorOverride& o : p.overrides) {
    if (o.device == TensorOverride::kHost) continue;
    if (named && !gpu) contradiction(name, o.given);
    if (p.gpu_layers == 0) contradiction(asked(p), o.given);
    if (!p.host_option.empty()) contradiction(p.host_option, o.given);
  }
  if (p.host_option.empty()) return;
  if (!p.gpus.named.empty()) contradiction("--device " + gpu_name(p.gpus.named.front()), p.host_option);
  if (gpu) contradiction(name, p.host_option);
  if (p.gpu_layers > 0) contradiction(asked(p), p.host_option);
}

void refuse_absent(const std::vector<TensorOverride>& overrides, const std::vector<int>& gpus) {
  for (const TensorOverride& o : overrides) {
    if (o.device == TensorOverride::kHost || std::ranges::find(gpus, o.device) != gpus.end()) continue;
    std::string names;
    for (const int gpu : gpus) names += (names.empty() ? "" : ", ") + gpu_name(gpu);
    throw Error(ErrorKind::Device,
                "option " + o.given + ": " + gpu_name(o.device) + " is not among the GPUs of this run: " + names);
  }
}

/// What of the model runs on which GPUs.
PlacementOptions on_gpus(const Placement& p, const GpuReport& report) {
  const bool all = p.gpu_layers == Placement::kAuto && !p.backend.empty();  // who names it wants it
  PlacementOptions o{.layers = all ? Placement::kAll : p.gpu_layers,
                     .host_experts = p.cpu_experts,
                     .room = p.room,
                     .streams = p.streams};
  std::vector<int> usable;
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    if (report.gpus[i].why_not.empty()) usable.push_back(static_cast<int>(i));
  }
  choose_devices(o, p.gpus, usable, [](int gpu) { return free_gpu_memory(static_cast<std::size_t>(gpu)); });
  o.overrides = p.overrides;
  if (p.cpu_ffn > 0) o.overrides.push_back(host_ffn(p.cpu_ffn));
  refuse_absent(o.overrides, o.devices);
  return o;
}

void add_device_options(Command& cli, Placement& p) {
  const auto set_devices = [&p](const std::string& text) {
    if (text == "none") {
      p.host_option = "--device none";
    } else if (p.host_option == "--device none") {
      p.host_option.clear();
    }
    p.gpus.named = text == "none" ? std::vector<int>() : parse_gpus("--device", text);
  };
  cli.add_option_function<std::string>("--device", set_devices,
                                       "the GPUs that may be used, as --list-devices names them, such as CUDA0,CUDA1 "
                                       "(default: all); none: the CPU computes, as -ngl 0")
      ->type_name("GPU,...|none")
      ->take_last();
  cli.add_option_function<std::string>(
         "--split-mode", [&p](const std::string& text) { p.gpus.split = parse_split("--split-mode", text); },
         "layer: whole layers go to all GPUs, one after the other; none: to one; default: to the one with the most "
         "free memory, to all if it has no room for what -ngl asks for and the cache")
      ->type_name("none|layer")
      ->take_last();
  cli.add_option_function<std::string>(
         "--tensor-split", [&p](const std::string& text) { p.gpus.shares = parse_shares("--tensor-split", text); },
         "how many of the layers each GPU gets, as proportions: 3,1; implies --split-mode layer (default: by free "
         "memory)")
      ->type_name("X,...")
      ->take_last();
  cli.add_option_function<std::string>(
         "--main-gpu",
         [&p](const std::string& text) {
           p.gpus.main = static_cast<int>(parse_integer("--main-gpu", text, 0, kMaxInt32 - 1));
         },
         "the GPU of a model that runs on one, counted from 0 among those of --device (default: the one with the most "
         "free memory)")
      ->type_name("N")
      ->take_last();
}

BackendChoice find_backend(const Placement& p) {
  using Failure = BackendChoice::Failure;
  refuse_contradictions(p);
  if (!p.backend.empty() && p.backend != "cuda") return {p.backend};
  if (p.gpu_layers == 0 || !p.host_option.empty()) return {"cpu"};
  const GpuReport report = look_for_gpus();
  const bool unasked = p.gpu_layers == Placement::kAuto && p.gpus.named.empty() && p.backend.empty();
  if (report.state == GpuReport::State::Usable)
    return {"cuda", on_gpus(p, report), unasked ? Failure::MeansCpu : Failure::IsTheUsers};
  if (!p.backend.empty()) return {p.backend};  // which says why it cannot
  if (p.gpu_layers != Placement::kAuto) {
    throw Error(ErrorKind::Device, "option " + asked(p) + ": no GPU can be used: " + report.reason +
                                       "; 0 and auto run the model on the CPU");
  }
  for (const TensorOverride& o : p.overrides) {
    if (o.device != TensorOverride::kHost)
      throw Error(ErrorKind::Device, "option " + o.given + ": no GPU can be used: " + report.reason);
  }
  if (!p.gpus.named.empty()) {
    throw Error(ErrorKind::Device, "option --device " + gpu_name(p.gpus.named.front()) +
                                       ": no GPU can be used: " + report.reason + "; none runs the model on the CPU");
  }
  if (report.state == GpuReport::State::Unusable) warn_of_cpu(report.reason);
  return {"cpu"};
}

}  // namespace

std::string gpu_text(const Gpu& gpu) {
  return escaped(gpu.name) + ", compute capability " + std::to_string(gpu.major) + "." + std::to_string(gpu.minor);
}

int parse_gpu_layers(std::string_view option, std::string_view text) {
  if (text == "auto") return Placement::kAuto;
  if (text == "all") return Placement::kAll;
  try {
    return static_cast<int>(parse_integer(option, text, 0, kMaxInt32 - 1));
  } catch (const Error&) {
    throw Error(ErrorKind::Usage,
                "option " + std::string(option) + ": \"" + escaped(text) + "\" is not auto, all or a number of layers");
  }
}

void add_placement_options(Command& cli, Placement& p) {
  cli.add_option_function<std::string>(
         "--gpu-layers,--n-gpu-layers",
         [&p](const std::string& text) { p.gpu_layers = parse_gpu_layers("--gpu-layers", text); },
         "layers that the GPU computes, counted from the last (default auto: as many as fit); the output head counts "
         "as the very last; all, or more than there are: the whole model, or the run fails (codes 4, 9); 0: none")
      ->type_name("N|auto|all")
      ->take_last();
  cli.add_flag_callback(
      "--cpu-moe", [&p] { p.cpu_experts = Placement::kAll; },
      "the CPU computes the experts, whose weights stay in its memory; the GPU the rest of its layers");
  cli.add_option_function<std::string>(
         "--n-cpu-moe",
         [&p](const std::string& text) {
           const auto layers = static_cast<int>(parse_integer("--n-cpu-moe", text, 0, kMaxInt32 - 1));
           p.cpu_experts = std::max(p.cpu_experts, layers);
         },
         "the same for the experts of the first N layers")
      ->type_name("N")
      ->take_last();
  cli.add_option_function<std::string>(
         "--n-cpu-ffn",
         [&p](const std::string& text) {
           p.cpu_ffn = static_cast<int>(parse_integer("--n-cpu-ffn", text, 0, kMaxInt32 - 1));
         },
         "the same for the matrices of the dense feed-forward parts (gate, up, down) of the first N layers")
      ->type_name("N")
      ->take_last();
  cli.add_option_function<std::vector<std::string>>(
         "--override-tensor",
         [&p](const std::vector<std::string>& texts) { p.overrides = all_overrides("--override-tensor", texts); },
         "weights whose names a regular expression matches go to the CPU or a GPU, which computes with them: exps=CPU; "
         "of several that match the first counts, before -ngl, -cmoe and -ncffn")
      ->type_name("PATTERN=CPU|GPU,...")
      ->one_value();
  add_device_options(cli, p);
  // Of each pair the last one counts.
  const std::string no_kv_offload = "--no-kv-offload";
  cli.add_flag_callback(
         "--kv-offload",
         [&p, no_kv_offload] {
           if (p.host_option == no_kv_offload) p.host_option.clear();
         },
         "keys and values are where the model runs (the default)")
      ->trigger_on_parse();
  cli.add_flag_callback(
         no_kv_offload, [&p, no_kv_offload] { p.host_option = no_kv_offload; },
         "keys and values stay in the host's memory; so does the model then, as -ngl 0")
      ->trigger_on_parse();
  cli.add_flag_callback(
         "--no-op-offload", [&p] { p.streams = false; },
         "what the CPU computes of generated tokens it computes of long prompts, too")
      ->trigger_on_parse();
  cli.add_flag_callback(
         "--op-offload", [&p] { p.streams = true; },
         "for long prompts, weights of the CPU's layers and experts are brought to the GPU, which computes with "
         "them (the default)")
      ->trigger_on_parse();
  cli.add_flag_callback(
         "--list-devices", [] { throw TextAsked{list_of_devices()}; }, "print the GPUs, or why there is none")
      ->trigger_on_parse();
  std::string names;
  for (const std::string_view name : backend_names()) names += (names.empty() ? "" : "|") + std::string(name);
  cli.add_option("--backend", p.backend, "what computes; decides alone (default: cuda or cpu, by --gpu-layers)")
      ->type_name(names)
      ->take_last();
}

std::vector<TensorOverride> all_overrides(std::string_view option, const std::vector<std::string>& texts) {
  std::vector<TensorOverride> all;
  for (const std::string& text : texts)
    std::ranges::move(parse_tensor_overrides(option, text), std::back_inserter(all));
  return all;
}

BackendChoice choose_backend(const Placement& p) {
  const BackendChoice choice = find_backend(p);
  if (choice.name != "cuda") warn_of_idle_options(p);
  return choice;
}

void warn_of_idle_options(const Placement& p) {
  static bool told = false;  // a draft model has the same options
  if (std::exchange(told, true)) return;
  const auto warn = [](const std::string& option) {
    print_warnings({{"no-effect", option + " has no effect: the model runs on the CPU"}});
  };
  if (p.gpus.split == DeviceWish::Split::Layers) warn("--split-mode layer");
  if (!p.gpus.shares.empty()) warn("--tensor-split");
  if (p.gpus.main) warn("--main-gpu " + std::to_string(*p.gpus.main));
}

void warn_of_cpu(const std::string& reason) {
  print_warnings({{"gpu", "the model runs on the CPU: " + reason + " (-ngl 0 asks for that)"}});
}

}  // namespace llm::app
