// Thinking in answers: which marks a template has, and the parser, whose result must not depend on how the text is cut.
// Expected values come from the formats: what stands between the marks, and what does not.
#include <cstdlib>

#include "support/catch.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/text.h"
#include "text/reasoning.h"

using namespace llm;

namespace {

struct Divided {
  std::string thinking, aside, answer;
  bool operator==(const Divided&) const = default;
};

Divided divide(const ReasoningMarkers& markers, ReasoningPhase begins, const std::vector<std::string>& pieces) {
  ReasoningParser parser(markers, begins);
  Divided all;
  const auto take = [&](const ReasoningParser::Parts& p) {
    all.thinking += p.thinking;
    all.aside += p.aside;
    all.answer += p.answer;
  };
  for (const std::string& piece : pieces) take(parser.push(piece));
  take(parser.finish());
  return all;
}

struct Case {
  std::string format;  ///< a text that a template of it has
  ReasoningPhase begins;
  std::string text, thinking, answer;
};

constexpr auto Before = ReasoningPhase::Before, Inside = ReasoningPhase::Inside, Answer = ReasoningPhase::Answer;
const std::string kHarmony = "<|channel|>analysis<|message|>", kSolar = "<|begin|>assistant<|think|>";

const std::vector<Case> kCases{
    {"</think>", Before, "<think>\nhm, a\nb\n</think>\n\nYes.\n", "hm, a\nb", "Yes.\n"},
    {"</think>", Before, "\n<think>hm</think>Yes", "hm", "Yes"},
    {"</think>", Before, "<think>\n\n</think>\n\nYes", "", "Yes"},
    {"</think>", Before, "  Yes <think>no</think>", "", "  Yes <think>no</think>"},
    {"</think>", Before, "<thin air>", "", "<thin air>"},
    {"</think>", Before, "<thi", "", "<thi"},
    {"</think>", Before, "", "", ""},
    {"</think>", Inside, "hm </thin </think>\nYes </think>", "hm </thin", "Yes </think>"},
    {"</think>", Inside, "\n<think>\nhm</think>Yes", "hm", "Yes"},  // the mark again, behind the template's
    {"</think>", Inside, "< 5 is <", "< 5 is <", ""},
    {"</think>", Inside, "hm\xc3\xa9 </think>\n \t\xc3\xa9", "hm\xc3\xa9", "\xc3\xa9"},
    {"</think>", Inside, "cut </thi", "cut </thi", ""},
    {"</think>", ReasoningPhase::After, "\n\n<think>Yes", "", "<think>Yes"},
    {"</think>", Answer, "<think>text</think>", "", "<think>text</think>"},
    {"[/THINK]", Before, "[THINK]a[b] [/THINK]c", "a[b]", "c"},
    {"</seed:think>", Before, "<seed:think>a</think></seed:think>c", "a</think>", "c"},
    {kHarmony, Before, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes", "hm",
     "Yes"},
    {kHarmony, Before, "<|channel|>final<|message|>Yes", "", "Yes"},
    {kHarmony, Before, "<|start|>assistant<|channel|>final<|message|>Yes", "", "Yes"},
    {kHarmony, Before, "Yes", "", "Yes"},
    {kHarmony, Before,
     "<|channel|>analysis<|message|>a <|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant"
     "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}",
     "a\n\nb", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}"},
    {kHarmony, Before, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}", "",
     "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}"},
    {kHarmony, Before,
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}",
     "a", " to=functions.f<|channel|>commentary json<|message|>{}"},
    {kHarmony, Before,
     "<|channel|>commentary<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>a<|end|>"
     "<|start|>assistant<|channel|>final<|message|>Two.",
     "a", "One.\n\nTwo."},
    {kHarmony, Inside, "hm<|end|><|start|>assi", "hm", ""},
    {kSolar, Before, "<|think|>hm<|end|><|begin|>assistant<|content|>Yes", "hm", "Yes"},
    {kSolar, Before, "<|content|>Yes", "", "Yes"},
};

}  // namespace

TEST_CASE("a text is divided the same however it is cut", "[reasoning]") {
  for (const Case& c : kCases) {
    INFO(c.text);
    const ReasoningMarkers markers = reasoning_markers_in(c.format).value();
    const Divided whole = divide(markers, c.begins, {c.text});
    CHECK(whole.thinking == c.thinking);
    CHECK(whole.answer == c.answer);
    std::vector<std::string> bytes;
    for (const char byte : c.text) bytes.emplace_back(1, byte);
    CHECK(divide(markers, c.begins, bytes) == whole);
    for (std::size_t at = 0; at <= c.text.size(); ++at) {
      CHECK(divide(markers, c.begins, {c.text.substr(0, at), c.text.substr(at)}) == whole);
    }
  }
}

TEST_CASE("with its marks and the thinking a text is whole", "[reasoning]") {
  for (const Case& c : kCases) {
    INFO(c.text);
    const Divided d = divide(reasoning_markers_in(c.format).value(), c.begins, {c.text});
    if (c.text.find("One.") == std::string::npos)
      CHECK(d.aside + d.answer == c.text);  // there, two messages are joined
  }
}

TEST_CASE("no byte waits that is certain", "[reasoning]") {
  ReasoningParser parser(usual_reasoning_markers(), Inside);
  CHECK(parser.push("a").thinking == "a");
  CHECK(parser.push("b<").thinking == "b");
  CHECK(parser.push("/thinX").thinking == "</thinX");
  CHECK(parser.push(" </thin").thinking.empty());
  CHECK(parser.begun_close() == "</thin");
  CHECK(parser.push("k>").thinking.empty());
  CHECK(parser.phase() == ReasoningPhase::After);
  CHECK(parser.push("\n\nY").answer == "Y");
  CHECK(parser.push("es").answer == "es");
}

TEST_CASE("where an answer is when the prompt ends", "[reasoning]") {
  const ReasoningMarkers think = usual_reasoning_markers();
  CHECK(reasoning_phase_after(think, "<|im_start|>assistant\n") == Before);
  CHECK(reasoning_phase_after(think, "<|Assistant|><think>\n") == Inside);
  CHECK(reasoning_phase_after(think, "assistant\n<think>\n\n</think>\n\n") == ReasoningPhase::After);
  CHECK(reasoning_phase_after(think, "what is <think>?<|im_end|>") == Before);
  const ReasoningMarkers harmony = reasoning_markers_in(kHarmony).value();
  CHECK(reasoning_phase_after(harmony, "<|end|><|start|>assistant") == Before);
  CHECK(reasoning_phase_after(harmony, "hello<|end|>") == Before);
  CHECK(reasoning_phase_after(harmony, "assistant<|channel|>analysis<|message|>") == Inside);
  CHECK(reasoning_phase_after(harmony, "assistant<|channel|>final<|message|>") == Answer);
}

TEST_CASE("templates of models name their marks", "[reasoning]") {
  const std::vector<std::tuple<std::string, std::string, std::string>> known{
      {"Qwen-Qwen3-0.6B", "<think>", "</think>"},
      {"Qwen-QwQ-32B", "<think>", "</think>"},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "<think>", "</think>"},
      {"deepseek-ai-DeepSeek-V3.1", "<think>", "</think>"},
      {"GLM-4.6", "<think>", "</think>"},
      {"HuggingFaceTB-SmolLM3-3B", "<think>", "</think>"},
      {"NVIDIA-Nemotron-Nano-v2", "<think>", "</think>"},
      {"mistralai-Ministral-3-14B-Reasoning-2512", "[THINK]", "[/THINK]"},
      {"openai-gpt-oss-120b", "<|channel|>analysis<|message|>", "<|end|>"},
      {"upstage-Solar-Open-100B", "<|think|>", "<|end|>"},
      {"google-gemma-4-31B-it", "<|channel>thought\n", "<channel|>"},
      {"ByteDance-Seed-OSS", "<seed:think>", "</seed:think>"},
      {"MiniMax-M3", "<mm:think>", "</mm:think>"},
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "<|START_THINKING|>", "<|END_THINKING|>"},
      {"Apertus-8B-Instruct", "<|inner_prefix|>", "<|inner_suffix|>"},
      {"unsloth-Apriel-1.5", "<thinking>", "</thinking>"},
      {"Qwen-Qwen2.5-7B-Instruct", "", ""},
      {"meta-llama-Llama-3.1-8B-Instruct", "", ""},
      {"google-gemma-2-2b-it", "", ""},
      {"mistralai-Mistral-Nemo-Instruct-2407", "", ""},
      {"microsoft-Phi-3.5-mini-instruct", "", ""},
  };
  const auto archive = test::shared_file("data/templates/templates.tar.xz");
  if (!archive) return;
  const test::TempDir folder;
  const std::string unpack = "tar -xJf '" + archive->string() + "' -C '" + (folder / "").string() + "'";
  REQUIRE(std::system(unpack.c_str()) == 0);
  for (const auto& [name, open, close] : known) {
    INFO(name);
    const std::string source = test::read_file(folder / "templates" / (name + ".jinja"));
    REQUIRE_FALSE(source.empty());
    const auto markers = reasoning_markers_in(source);
    REQUIRE(markers.has_value() == !open.empty());
    if (!markers) continue;
    CHECK(markers->open == open);
    CHECK(markers->close == close);
  }
}
