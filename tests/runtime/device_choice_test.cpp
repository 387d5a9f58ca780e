// Which GPUs a model may use, and how layers are shared out among them: pure functions of what is free.
#include "runtime/device_choice.h"

#include <map>
#include <set>

#include "backend/cuda/gpus.h"
#include "placed.h"
#include "runtime/layer_plan.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

using Split = DeviceWish::Split;

PlacementOptions chosen(const DeviceWish& wish, const std::vector<int>& usable,
                        const std::map<int, std::uint64_t>& free = {}) {
  PlacementOptions o;
  choose_devices(o, wish, usable, [&](int gpu) { return free.at(gpu); });
  return o;
}

Error error_of_choice(const DeviceWish& wish, const std::vector<int>& usable) {
  return error_of([&] { chosen(wish, usable); });
}

using Layers = std::vector<int>;

/// Every layer takes one, the head two, the embedding, where all are on devices, three of the first that has any.
Fits room_for(const std::vector<int>& room, int all) {
  return [=](const Layers& layers) {
    int sum = 0;
    bool first = true, fits = true;
    for (const int n : layers) sum += n;
    for (std::size_t d = 0; d < layers.size(); ++d) {
      int needed = layers[d];
      if (layers[d] > 0 && first) needed += sum == all ? 3 : 0;
      first &= layers[d] == 0;
      bool last = layers[d] > 0;
      for (std::size_t e = d + 1; e < layers.size(); ++e) last &= layers[e] == 0;
      if (last) needed += 1;
      fits &= needed <= room[d];
    }
    return fits;
  };
}

}  // namespace

TEST_CASE("a single GPU is used without asking what is free there", "[placement]") {
  const PlacementOptions o = chosen({}, {1});
  CHECK(o.devices == Layers{1});
  CHECK(o.preferred == 0);
  CHECK(o.shares.empty());
  CHECK(chosen({.split = Split::Layers}, {0}).devices == Layers{0});
  CHECK(chosen({.main = 0}, {0}).devices == Layers{0});
}

TEST_CASE("a GPU that cannot be used is passed over", "[placement]") {
  const Gpu good{.name = "A"}, old{.name = "B", .why_not = "too old"};
  CHECK(first_usable_gpu({.gpus = {old, good, good}}) == 1);
  CHECK(first_usable_gpu({.gpus = {good, old}}) == 0);
  CHECK(first_usable_gpu({.gpus = {old}}) == 0);
}

TEST_CASE("of several GPUs the one with the most free memory comes first", "[placement]") {
  const PlacementOptions o = chosen({}, {0, 1, 2}, {{0, 500}, {1, 1000}, {2, 900}});
  CHECK(o.devices == Layers{0, 1, 2});
  CHECK(o.preferred == 1);
  CHECK(o.split == PlacementOptions::Split::WhereNeeded);
  // A hundredth more or less comes and goes.
  CHECK(chosen({}, {0, 1, 2}, {{0, 995}, {1, 1000}, {2, 1000}}).preferred == 0);
  CHECK(chosen({}, {0, 1, 2}, {{0, 985}, {1, 1000}, {2, 1000}}).preferred == 1);
  CHECK(chosen({}, {0, 1}, {{0, 0}, {1, 0}}).preferred == 0);
}

TEST_CASE("-sm none, -mg and --device choose GPUs", "[placement]") {
  const std::map<int, std::uint64_t> free{{0, 5}, {1, 9}, {3, 7}};
  CHECK(chosen({.split = Split::None}, {0, 1, 3}, free).devices == Layers{1});
  CHECK(chosen({.split = Split::None, .main = 2}, {0, 1, 3}).devices == Layers{3});  // nothing is asked
  CHECK(chosen({.named = {3, 0}, .split = Split::None, .main = 1}, {0, 1, 3}).devices == Layers{0});
  const PlacementOptions main = chosen({.main = 2}, {0, 1, 3});
  CHECK(main.devices == Layers{0, 1, 3});
  CHECK(main.preferred == 2);
  CHECK(main.split == PlacementOptions::Split::WhereNeeded);
  const PlacementOptions named = chosen({.named = {3, 0}}, {0, 1, 3}, free);
  CHECK(named.devices == Layers{3, 0});
  CHECK(named.preferred == 0);
}

TEST_CASE("-sm layer and -ts use all GPUs", "[placement]") {
  const PlacementOptions layers = chosen({.split = Split::Layers}, {0, 1});
  CHECK(layers.split == PlacementOptions::Split::Always);
  CHECK(layers.shares.empty());
  const PlacementOptions shares = chosen({.shares = {3, 1}}, {0, 1, 2});
  CHECK(shares.split == PlacementOptions::Split::Always);
  CHECK(shares.shares == std::vector<double>{3, 1, 0});
}

TEST_CASE("GPUs that are not there are named", "[placement]") {
  const Error device = error_of_choice({.named = {0, 4}}, {0, 1});
  CHECK(device.kind() == ErrorKind::Device);
  CHECK(contains(device.what(), "option --device: CUDA4 cannot be used here, CUDA0, CUDA1 can"));
  const Error main = error_of_choice({.main = 2}, {0, 1});
  CHECK(main.kind() == ErrorKind::Device);
  CHECK(contains(main.what(), "option --main-gpu 2: there are 2 GPUs, counted from 0: CUDA0, CUDA1"));
  CHECK(contains(error_of_choice({.named = {1}, .main = 1}, {0, 1}).what(), "there is 1 GPU, counted from 0: CUDA1"));
  const Error shares = error_of_choice({.shares = {1, 1}}, {0});
  CHECK(shares.kind() == ErrorKind::Device);
  CHECK(contains(shares.what(), "option --tensor-split: 2 shares for 1 GPU: CUDA0"));
}

TEST_CASE("lists of GPUs and of shares are read, or refused", "[placement]") {
  CHECK(parse_gpus("-dev", "CUDA1") == Layers{1});
  CHECK(parse_gpus("-dev", "CUDA10,CUDA0") == Layers{10, 0});
  for (const char* text : {"", "CUDA", "cuda0", "GPU0", "CUDA0,", "CUDA-1", "CUDA0;CUDA1", "CUDA0, CUDA1", "CUDA1x",
                           "none,CUDA0", "CUDA99999999999"}) {
    INFO(text);
    const Error e = error_of([&] { parse_gpus("-dev", text); });
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(contains(e.what(), "is not none or GPUs that --list-devices names"));
  }
  CHECK(contains(error_of([] { parse_gpus("-dev", "CUDA1,CUDA1"); }).what(), "names a GPU twice"));
  CHECK(parse_shares("-ts", "3,1") == std::vector<double>{3, 1});
  CHECK(parse_shares("-ts", "0.5/0/2") == std::vector<double>{0.5, 0, 2});
  for (const char* text : {"", "3,", "a", "-1,2", "nan", "inf,1", "1 1", "1;1"}) {
    INFO(text);
    CHECK(contains(error_of([&] { parse_shares("-ts", text); }).what(), "is not a list of shares such as 3,1"));
  }
  CHECK(contains(error_of([] { parse_shares("-ts", "0,0"); }).what(), "gives no GPU a share"));
  CHECK(contains(error_of([] { parse_shares("-ts", "1e308,1e308"); }).what(), "too large to add up"));
  CHECK(parse_split("-sm", "none") == Split::None);
  CHECK(parse_split("-sm", "layer") == Split::Layers);
  for (const char* text : {"row", "tensor"})
    CHECK(contains(error_of([&] { parse_split("-sm", text); }).what(), "is recognised, not supported: "));
  CHECK(contains(error_of([] { parse_split("-sm", "rows"); }).what(), "is not none or layer"));
}

TEST_CASE("wishes that contradict each other are refused", "[placement]") {
  for (const DeviceWish& wish : {DeviceWish{.split = Split::None, .shares = {1, 1}},
                                 DeviceWish{.split = Split::Layers, .main = 0}, DeviceWish{.shares = {1}, .main = 0}}) {
    const Error e = error_of([&] { refuse_contradictions(wish); });
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(contains(e.what(), "contradict each other"));
  }
  refuse_contradictions({.named = {0, 1}, .split = Split::None, .main = 1});
  refuse_contradictions({.split = Split::Layers, .shares = {1, 2}});
}

TEST_CASE("layers are shared out as llama.cpp shares them out", "[placement]") {
  const auto shared = [](int layers, const std::vector<double>& shares) { return share_layers(layers, shares); };
  CHECK(shared(33, {1, 1}) == Layers{17, 16});
  CHECK(shared(33, {3, 1}) == Layers{25, 8});
  CHECK(shared(32, {3, 1}) == Layers{24, 8});
  CHECK(shared(33, {1, 0}) == Layers{33, 0});
  CHECK(shared(33, {0, 1}) == Layers{0, 33});
  CHECK(shared(1, {1, 9}) == Layers{1, 0});
  CHECK(shared(0, {1, 1}) == Layers{0, 0});
  CHECK(shared(10, {0.1, 0.1, 0.1}) == Layers{4, 3, 3});
}

TEST_CASE("layers go to GPUs in proportion to what is free, or as they fit", "[placement]") {
  PlacementOptions all, fitting{.layers = PlacementOptions::kFitting};
  const auto planned = [](const PlacementOptions& o, const std::vector<int>& room, int layers = 10) {
    const std::vector<double> free(room.begin(), room.end());
    return plan_layers(o, layers, free, room_for(room, layers));
  };
  // There is room for the proportion.
  CHECK(planned(all, {20, 20}) == Layers{5, 5});
  CHECK(planned(fitting, {30, 10}) == Layers{8, 2});
  // The embedding and the head do not fit beside what the proportion gives: the last GPU is filled first.
  CHECK(planned(fitting, {8, 6}) == Layers{5, 5});
  CHECK(planned(all, {7, 7}) == Layers{4, 6});
  CHECK(planned(fitting, {3, 20}) == Layers{0, 10});
  // Not everything fits: without the embedding more does.
  CHECK(planned(fitting, {3, 5}) == Layers{3, 4});
  CHECK(planned(fitting, {4, 7}) == Layers{3, 6});
  CHECK(planned(fitting, {1, 1, 2}) == Layers{1, 1, 1});
  CHECK(planned(fitting, {1, 1, 1}) == Layers{0, 0, 0});  // the head comes first
  CHECK(planned(fitting, {0, 0}) == Layers{0, 0});
  CHECK(planned(fitting, {5, 0}) == Layers{4, 0});
  // What was asked for and does not fit stays as it is: the error will say what it would take.
  CHECK(planned(all, {3, 5}) == Layers{4, 6});
  PlacementOptions some{.layers = 4};
  CHECK(planned(some, {20, 20}) == Layers{2, 2});
  CHECK(planned(some, {2, 20}) == Layers{1, 3});
  // Shares that were given are kept, by fewer layers if need be.
  all.shares = fitting.shares = {3, 1};
  CHECK(planned(all, {20, 20}) == Layers{8, 2});
  CHECK(planned(fitting, {20, 20}) == Layers{8, 2});
  CHECK(planned(fitting, {4, 20}) == Layers{4, 1});
  CHECK(planned(fitting, {20, 2}) == Layers{6, 1});
}
