// The table of settings, and chains by name.
#include "runtime/sampler_options.h"

#include <limits>
#include <set>

#include "gguf/file.h"
#include "support/catch.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

using namespace llm;
using namespace llm::test;

namespace {

std::string refusal(const SamplingParameter& p, double value) {
  SamplerOptions options;
  try {
    set_value(options, p, value);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Usage);
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("every setting takes its range and its default, and nothing else") {
  std::set<std::string_view> names, options;
  for (const SamplingParameter& p : sampling_parameters()) {
    INFO(p.name);
    CHECK(names.insert(p.name).second);
    CHECK(find_sampling_parameter(p.name) == &p);
    SamplerOptions o;
    for (const double v : {p.min, p.max, value(o, p)}) {
      set_value(o, p, v);
      CHECK(value(o, p) == Approx(v));
    }
    for (const double v : {p.min - 1, p.max + 1, std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      CHECK(refusal(p, v).find(std::string(p.name) + ": ") == 0);
      CHECK(refusal(p, v).find(" to ") != std::string::npos);
    }
    if (is_integer(p)) CHECK(refusal(p, p.min + 0.5).find("whole number") != std::string::npos);
  }
  CHECK(find_sampling_parameter("adaptive_target") == nullptr);
}

TEST_CASE("the defaults are llama.cpp's") {
  // Of llama-cpp-python 0.3.36: --help of llama.cpp's programs.
  const SamplerOptions o;
  struct Default {
    const char* name;
    double value;
  };
  for (const Default d : {Default{"temperature", 0.8},      Default{"top_k", 40},
                          Default{"top_p", 0.95},           Default{"min_p", 0.05},
                          Default{"top_n_sigma", -1},       Default{"xtc_probability", 0},
                          Default{"xtc_threshold", 0.1},    Default{"typical_p", 1},
                          Default{"repeat_last_n", 64},     Default{"repeat_penalty", 1},
                          Default{"presence_penalty", 0},   Default{"frequency_penalty", 0},
                          Default{"dry_multiplier", 0},     Default{"dry_base", 1.75},
                          Default{"dry_allowed_length", 2}, Default{"dry_penalty_last_n", 64},
                          Default{"dynatemp_range", 0},     Default{"dynatemp_exponent", 1},
                          Default{"mirostat", 0},           Default{"mirostat_eta", 0.1},
                          Default{"mirostat_tau", 5},       Default{"min_keep", 0}}) {
    INFO(d.name);
    CHECK(value(o, *find_sampling_parameter(d.name)) == Approx(d.value));
  }
  CHECK(o.order == parse_sampler_names("penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"));
  CHECK(o.order == parse_sampler_letters("edskypmxt"));
  CHECK(o.dry_sequence_breakers == std::vector<std::string>{"\n", ":", "\"", "*"});
}

TEST_CASE("samplers have other spellings") {
  using K = SamplerKind;
  CHECK(parse_sampler_names("").empty());
  CHECK(parse_sampler_names("top-k,nucleus;typical;typical-p;typ;temp;top-n-sigma;min-p") ==
        std::vector<K>{K::TopK, K::TopP, K::Typical, K::Typical, K::Typical, K::Temperature, K::TopNSigma, K::MinP});
  CHECK_THROWS_AS(parse_sampler_names("top_k;;top_p"), Error);
  CHECK_THROWS_AS(parse_sampler_names(" top_k"), Error);
  CHECK_THROWS_AS(parse_sampler_letters("k p"), Error);
}

TEST_CASE("what acts is what changes something") {
  using K = SamplerKind;
  SamplerOptions o;
  CHECK(acting_samplers(o) == std::vector<K>{K::TopK, K::TopP, K::MinP, K::Temperature});
  o.repeat_penalty = 1.1F;
  o.dry_multiplier = 1;
  o.xtc_probability = 0.5F;
  CHECK(acting_samplers(o) == std::vector<K>{K::Penalties, K::Dry, K::TopK, K::TopP, K::MinP, K::Xtc, K::Temperature});
  o.repeat_last_n = 0;
  o.dry_penalty_last_n = 0;
  o.xtc_threshold = 0.6F;
  CHECK(acting_samplers(o) == std::vector<K>{K::TopK, K::TopP, K::MinP, K::Temperature});
  o.mirostat = 1;
  CHECK(acting_samplers(o) == std::vector<K>{K::Temperature});
}

TEST_CASE("a recommendation of any number's type is taken or left out with a warning") {
  const TempDir folder;
  TinyFile file = tiny_model();
  file.set("general.sampling.top_k", std::uint64_t{7});
  file.set("general.sampling.penalty_repeat", std::numeric_limits<std::uint64_t>::max());
  file.write(folder / "model.gguf");
  Warnings warnings;
  SamplerOptions options;
  const GgufFile opened = GgufFile::open(folder / "model.gguf", warnings);
  CHECK(apply_file_sampling(opened.metadata(), options, warnings) == std::vector<std::string_view>{"top_k"});
  CHECK(options.top_k == 7);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].code == "sampling-key");
}

TEST_CASE("tokens that a file forbids are never drawn") {
  const TempDir folder;
  TinyFile file = tiny_model();
  const auto read = [&](SamplerOptions& options) {
    file.write(folder / "model.gguf");
    Warnings warnings;
    const GgufFile opened = GgufFile::open(folder / "model.gguf", warnings);
    return apply_file_sampling(opened.metadata(), options, warnings);
  };
  SamplerOptions none, some;
  CHECK(read(none).empty());
  CHECK(none.forbidden.empty());
  file.set_array("tokenizer.ggml.suppress_tokens", std::vector<std::int32_t>{7, 260});
  CHECK(read(some) == std::vector<std::string_view>{"suppress_tokens"});
  CHECK(some.logit_bias.empty());  // which is what a user asked for
  CHECK(some.forbidden == std::vector<Token>{7, 260});
  CHECK(describe(some).starts_with("forbid 2 tokens -> "));
  file.set_array("tokenizer.ggml.suppress_tokens", std::vector<std::int32_t>{-1});
  try {
    SamplerOptions wrong;
    read(wrong);
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Model);
    CHECK(e.parts().subject.find("suppress_tokens") != std::string::npos);
  }
}
