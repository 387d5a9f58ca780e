#include "speculation_options.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "common/messages.h"
#include "common/numbers.h"
#include "runtime/figures.h"
#include "runtime/model_drafter.h"
#include "runtime/ngram_drafter.h"
#include "runtime/prediction_drafter.h"

namespace llm::app {
namespace {

using Type = SpeculationChoice::Type;

struct TypeName {
  std::string_view name;
  Type type;
};
/// Ours first; the others are llama.cpp's for what does the same here.
constexpr std::array kTypeNames{TypeName{"ngram", Type::Ngram},         TypeName{"draft", Type::Draft},
                                TypeName{"ngram-simple", Type::Ngram},  TypeName{"ngram-map-k", Type::Ngram},
                                TypeName{"ngram-map-k4v", Type::Ngram}, TypeName{"ngram-mod", Type::Ngram},
                                TypeName{"ngram-cache", Type::Ngram},   TypeName{"draft-simple", Type::Draft},
                                TypeName{"draft-mtp", Type::Prediction}};
constexpr std::array<std::string_view, 3> kUnsupported{"draft-eagle3", "draft-dflash", "draft-dspark"};

Type type_of(std::string_view text) {
  const auto known =
      std::find_if(kTypeNames.begin(), kTypeNames.end(), [&](const TypeName& t) { return t.name == text; });
  if (known != kTypeNames.end()) return known->type;
  const bool reserved = std::find(kUnsupported.begin(), kUnsupported.end(), text) != kUnsupported.end();
  throw Error(ErrorKind::Usage, "option --spec-type: " +
                                    (reserved ? std::string(text) + " is recognised, not supported yet: "
                                              : "\"" + escaped(text) + "\" is not ") +
                                    "none, or some of ngram, draft and draft-mtp, such as ngram,draft");
}

std::vector<Type> types_of(std::string_view text) {
  std::vector<Type> types;
  if (text == "none") return types;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const Type type = type_of(text.substr(begin, end - begin));
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
    begin = end + 1;
  }
  return types;
}

bool wants(const SpeculationChoice& o, Type type) {
  if (!o.types) return type != Type::Prediction && (type == Type::Ngram || !o.draft_model.empty());
  return std::find(o.types->begin(), o.types->end(), type) != o.types->end();
}

}  // namespace

void add_speculation_options(Command& cli, SpeculationChoice& o) {
  constexpr int kMost = static_cast<int>(kMostColumns) - 1;
  const auto option = [&](const std::string& names, const std::string& type, const std::string& help, auto set) {
    cli.add_option_function<std::string>(
           names,
           [&o, names, set](const std::string& text) {
             o.given = names.substr(0, names.find(','));
             set(text);
           },
           help)
        ->type_name(type)
        ->take_last()
        ->group("Speculation");
  };
  const auto flag = [&](const std::string& names, SpeculationOptions::Length length, const std::string& help) {
    cli.add_flag_callback(
           names, [&o, length] { o.length = length; }, help)
        ->trigger_on_parse()
        ->group("Speculation");
  };
  option("--spec-type", "TYPES",
         "what is drafted ahead and checked in one step, which never changes the text: none; ngram: what followed the "
         "same words before (default); draft: what --model-draft guesses; draft-mtp: what the model's own prediction "
         "layer guesses, which few files have; or several, such as ngram,draft",
         [&o](const std::string& t) { o.types = types_of(t); });
  option("--model-draft,--spec-draft-model", "FILE",
         "a smaller model with the same vocabulary that drafts; n-grams go on drafting where they promise more",
         [&o](const std::string& t) { o.draft_model = t; });
  cli.add_option_function<std::string>(
         "--gpu-layers-draft,--n-gpu-layers-draft,--spec-draft-ngl",
         [&o](const std::string& t) { o.draft_layers = parse_gpu_layers("--gpu-layers-draft", t); },
         "the same as --gpu-layers for the draft model (default: what --gpu-layers says)")
      ->type_name("N|auto|all")
      ->take_last()
      ->group("Speculation");
  cli.add_option_function<std::vector<std::string>>(
         "--override-tensor-draft,--spec-draft-override-tensor",
         [&o](const std::vector<std::string>& t) { o.draft_overrides = all_overrides("--override-tensor-draft", t); },
         "the same as --override-tensor for the draft model's tensors")
      ->type_name("PATTERN=CPU|GPU,...")
      ->one_value()
      ->group("Speculation");
  option("--spec-draft-n-max,--draft-max,--draft-n,--draft", "N", "most tokens of a draft, 0 to 63 (default 31)",
         [&o](const std::string& t) { o.most = static_cast<int>(parse_integer("--spec-draft-n-max", t, 0, kMost)); });
  option("--spec-draft-n-min,--draft-min,--draft-n-min", "N", "drafts of fewer tokens are not used (default 0)",
         [&o](const std::string& t) { o.least = static_cast<int>(parse_integer("--spec-draft-n-min", t, 0, kMost)); });
  option("--spec-draft-p-min,--draft-p-min", "P",
         "drafts of a draft model or a prediction layer end before a token that it finds less likely, 0 to 1 (default "
         "0)",
         [&o](const std::string& t) { o.p_min = static_cast<float>(parse_real("--spec-draft-p-min", t, 0, 1)); });
  flag("--spec-auto,--spec-default", SpeculationOptions::Length::Adaptive,
       "draft what promises to save time, by the measured costs and luck; often nothing (default)");
  flag("--no-spec-auto", SpeculationOptions::Length::Fixed, "draft as much as there is, whatever comes of it");
}

void check_speculation_options(const SpeculationChoice& o) {
  if (wants(o, Type::Draft) && o.draft_model.empty()) {
    throw Error(ErrorKind::Usage, "--spec-type draft needs --model-draft FILE");
  }
  if (o.draft_model.empty()) {
    const auto warn = [](const char* option) {
      print_warnings({{"no-effect", std::string(option) + " has no effect without --model-draft"}});
    };
    if (o.draft_layers) warn("--gpu-layers-draft");
    if (!o.draft_overrides.empty()) warn("--override-tensor-draft");
  }
  if (o.p_min > 0 && !wants(o, Type::Draft) && !wants(o, Type::Prediction)) {
    print_warnings({{"no-effect", "--spec-draft-p-min has no effect without a draft model or --spec-type draft-mtp"}});
  }
  if (o.most && o.least && *o.least > *o.most) {
    throw Error(ErrorKind::Usage, "--spec-draft-n-min is larger than --spec-draft-n-max: there would be no draft");
  }
}

bool wants_prediction(const SpeculationChoice& o) { return wants(o, Type::Prediction) && o.most.value_or(1) > 0; }

void refuse_speculation_in_batch(const SpeculationChoice& o) {
  if (o.given.empty() || (o.types && o.types->empty())) return;
  throw Error(ErrorKind::Usage, o.given +
                                    " is for one answer and for chats: the rows of a batch are computed together, " +
                                    "which leaves no time that drafts could save");
}

Drafting::Drafting(const SpeculationChoice& choice, const ModelOptions& options, Model& model, CacheFormat cache,
                   LoadOptions::Weights weights)
    : model_(model), choice_(choice), cache_(cache) {
  if (model.backend().name() == "blas") {
    if (choice.given.empty() || (choice.types && choice.types->empty())) return;
    throw Error(ErrorKind::Usage, choice.given +
                                      ": what the blas backend computes depends on how many tokens a step has, so that "
                                      "drafts would change the text; the others can draft");
  }
  most_ = choice.most ? static_cast<std::size_t>(*choice.most) : SpeculationOptions{}.most;
  if (!choice.draft_model.empty() && !wants(choice, Type::Draft)) {
    note("--spec-type leaves no work for the draft model: it is not loaded");
  }
  if (most_ == 0 || !wants(choice, Type::Draft)) return;
  ModelOptions draft = options;
  draft.predicts = false;
  draft.path = model_file(choice.draft_model);
  draft.overrides = {};  // they are about the model's own file
  draft.placement.overrides = choice.draft_overrides;
  draft.adapters = {};                    // they were made for the model
  draft.placement.room.batch_tokens = 0;  // -ub is about the model's own steps
  if (choice.draft_layers) {
    draft.placement.gpu_layers = *choice.draft_layers;
    draft.placement.option = "--gpu-layers-draft";
  }
  draft_ = load_model(draft, weights);
  require_same_vocabulary(model, *draft_);
}

std::vector<MemoryNeeds> Drafting::memory() const {
  if (most_ == 0 || !(wants(choice_, Type::Ngram) || draft_ || model_.predicts())) return {};
  std::vector<MemoryNeeds> needs;
  if (draft_) needs = memory_request(*draft_, {.context = 1, .cache = cache_}).memories;
  // Logits behind each guess, in this machine's memory.
  needs.push_back({.work_bytes = most_ * static_cast<std::uint64_t>(model_.dims().vocab) * sizeof(float)});
  return needs;
}

std::string Drafting::memory_text() const {
  if (!draft_) return "";
  const ContextRequest request = memory_request(*draft_, {.context = 1, .cache = cache_});
  const std::uint64_t states = state_bytes(request);
  return "weights " + bytes_text(weight_bytes(request)) + ", cache " + bytes_text(bytes_per_position(request) * 1000) +
         " per 1,000 tokens, " + (states > 0 ? "recurrent states " + bytes_text(states) + ", " : "") + "work buffers " +
         bytes_text(work_bytes(request));
}

Speculation* Drafting::start(Session& session) {
  const std::int64_t context = session.context();
  std::vector<std::unique_ptr<Drafter>> drafters;
  if (most_ > 0 && wants(choice_, Type::Ngram)) drafters.push_back(std::make_unique<NgramDrafter>());
  if (draft_) {
    const std::int64_t own = std::min(context, draft_->dims().context);
    drafters.push_back(
        std::make_unique<ModelDrafter>(model_, *draft_,
                                       ModelDrafter::Options{.p_min = static_cast<double>(choice_.p_min),
                                                             .session = {.context = own, .cache = cache_}}));
  }
  if (most_ > 0 && model_.predicts()) {
    auto drafter = std::make_unique<PredictionDrafter>(
        model_,
        PredictionDrafter::Options{.p_min = static_cast<double>(choice_.p_min), .context = context, .cache = cache_});
    session.tell_hidden([&own = *drafter](const HiddenRows& rows) { own.saw(rows); });
    drafters.push_back(std::move(drafter));
  }
  if (drafters.empty()) return nullptr;
  const auto least = static_cast<std::size_t>(choice_.least.value_or(0));
  speculation_ = std::make_unique<Speculation>(
      std::move(drafters), SpeculationOptions{.most = most_, .least = least, .length = choice_.length});
  return speculation_.get();
}

void warn_of_drafts(Speculation* speculation) {
  if (speculation == nullptr) return;
  for (const std::string& fault : speculation->take_faults()) {
    print_warnings({{"draft-model", fault}});
  }
}

std::string drafted_text(const SpeculationCounts& c) {
  if (c.drafted == 0) return "";
  return " (" + number_text(c.accepted) + " of " + number_text(c.drafted) + " drafted tokens came true)";
}

}  // namespace llm::app
