// sample_stream: a sampler driven by lines on stdin, for scripts/check-samplers. Answers go to stdout, a line each:
//
//   vocabulary FILE       a GGUF file, for the breakers of dry
//   reset                 default settings, no history
//   set NAME VALUE        a setting by its name in requests; before the first accept or run after a reset
//   order NAMES           as --samplers takes them
//   bias TOKEN BIAS
//   breakers HEX ...      instead of the default ones
//   accept TOKEN ...
//   run FILE INDEX        what the chain leaves of the logits in FILE (raw floats): TOKEN LOGIT ...
//   mu
//   bench FILE ROUNDS     microseconds of a sample, the median of so many
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>

#include "gguf/file.h"
#include "runtime/sampler.h"

using namespace llm;

namespace {

std::vector<float> read_floats(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  std::vector<float> all(static_cast<std::size_t>(in.tellg()) / sizeof(float));
  in.seekg(0).read(reinterpret_cast<char*>(all.data()), static_cast<std::streamsize>(all.size() * sizeof(float)));
  return all;
}

std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

class Driver {
 public:
  void command(const std::string& name, std::istringstream& rest) {
    std::string word;
    if (name == "vocabulary") {
      rest >> word;
      Warnings warnings;
      file_.emplace(GgufFile::open(word, warnings));
      tokenizer_ = Tokenizer::load(file_->metadata(), warnings);
    } else if (name == "reset") {
      options_ = {};
      sampler_.reset();
    } else if (name == "set") {
      double value = 0;
      rest >> word >> value;
      const SamplingParameter* p = find_sampling_parameter(word);
      if (p == nullptr) throw Error(ErrorKind::Usage, "no setting " + word);
      set_value(options_, *p, value);
    } else if (name == "order") {
      rest >> word;
      options_.order = parse_sampler_names(word);
    } else if (name == "bias") {
      LogitBias b{};
      rest >> b.token >> word;
      b.bias = std::stof(word);
      options_.logit_bias.push_back(b);
    } else if (name == "breakers") {
      options_.dry_sequence_breakers.clear();
      while (rest >> word) options_.dry_sequence_breakers.push_back(from_hex(word));
    } else if (name == "accept") {
      for (Token t = 0; rest >> t;) sampler().accept(t);
    } else {
      answer(name, rest);
    }
  }

 private:
  void answer(const std::string& name, std::istringstream& rest) {
    std::string path;
    std::uint64_t n = 0;
    if (name == "run") {
      rest >> path >> n;
      const auto logits = read_floats(path);
      std::cout << std::setprecision(9);
      for (const Candidate& c : sampler().candidates(logits, n)) std::cout << c.token << ' ' << c.logit << ' ';
      std::cout << std::endl;
    } else if (name == "mu") {
      std::cout << std::setprecision(17) << sampler().mu() << std::endl;
    } else if (name == "bench") {
      rest >> path >> n;
      std::cout << bench(read_floats(path), n) << std::endl;
    } else {
      throw Error(ErrorKind::Usage, "unknown command " + name);
    }
  }

  double bench(const std::vector<float>& logits, std::uint64_t rounds) {
    std::vector<double> times;
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const Token t = sampler().sample(logits, i);
      times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
      sampler().accept(t);
    }
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(rounds / 2), times.end());
    return times[rounds / 2];
  }

  Sampler& sampler() {
    if (!sampler_) {
      std::shared_ptr<const SequenceBreakers> breakers;
      if (tokenizer_) {
        breakers = std::make_shared<const SequenceBreakers>(
            find_sequence_breakers(*tokenizer_, options_.dry_sequence_breakers));
      }
      sampler_.emplace(options_, 0, breakers);
    }
    return *sampler_;
  }

  std::optional<GgufFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
  SamplerOptions options_;
  std::optional<Sampler> sampler_;
};

}  // namespace

int main() try {
  Driver driver;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream rest(line);
    std::string name;
    if (rest >> name) driver.command(name, rest);
  }
} catch (const Error& e) {
  std::cerr << "sample_stream: " << e.what() << '\n';
  return static_cast<int>(e.kind());
}
