#include "text/pattern.h"

#include <string>

#include "base/error.h"
#include "base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace llm {
namespace {

// Unicode's White_Space. PCRE2's own \s is the same set and U+180E, which left the property with Unicode 6.3.
constexpr std::string_view kWhiteSpace =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

constexpr std::size_t kJitStackStart = 64 << 10, kJitStackMax = 16 << 20;  // bytes; grows only if a search needs it

/// Spells \s and \S out. \S inside of a class is not supported: no published pattern has it.
std::string spelled_out(std::string_view expression) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c != '\\') {
      in_class = c == '[' ? true : c == ']' ? false : in_class;
      out += c;
      continue;
    }
    const char escape = i + 1 < expression.size() ? expression[++i] : '\\';
    check(!(escape == 'S' && in_class), "\\S in a class of a pre-tokenizer pattern");
    if (escape == 's' && in_class) {
      out += kWhiteSpace;
    } else if (escape == 's' || escape == 'S') {
      out.append(escape == 's' ? "[" : "[^").append(kWhiteSpace).append("]");
    } else {
      out += c;
      out += escape;
    }
  }
  return out;
}

std::string message(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack_free>>;

}  // namespace

struct PatternScratch::Impl {
  MatchData data{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack{pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)};
};

PatternScratch::PatternScratch() : impl_(std::make_unique<Impl>()) {
  if (!impl_->data || !impl_->context || !impl_->stack) throw Error(ErrorKind::Memory, "no memory for pattern search");
  pcre2_jit_stack_assign(impl_->context.get(), nullptr, impl_->stack.get());
}
PatternScratch::~PatternScratch() = default;

struct Pattern::Impl {
  Code code;
};

Pattern::Pattern(std::string_view expression) : impl_(std::make_unique<Impl>()) {
  const std::string text = spelled_out(expression);
  int error = 0;
  std::size_t offset = 0;
  impl_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_UTF | PCRE2_UCP, &error,
                                  &offset, nullptr));
  if (!impl_->code) {
    throw Error(ErrorKind::Internal, "pattern \"" + text + "\" at " + std::to_string(offset) + ": " + message(error));
  }
  // Where code cannot be generated (no such compiler for the machine, no executable memory), the interpreter does the
  // same.
  pcre2_jit_compile(impl_->code.get(), PCRE2_JIT_COMPLETE);
}

Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

std::optional<Pattern::Match> Pattern::find(std::string_view valid_utf8, std::size_t from,
                                            PatternScratch& scratch) const {
  const int rc = pcre2_match(impl_->code.get(), reinterpret_cast<PCRE2_SPTR>(valid_utf8.data()), valid_utf8.size(),
                             from, PCRE2_NO_UTF_CHECK, scratch.impl_->data.get(), scratch.impl_->context.get());
  if (rc == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (rc < 0) throw Error(ErrorKind::Runtime, "splitting text for the tokenizer failed: " + message(rc));
  const std::size_t* ends = pcre2_get_ovector_pointer(scratch.impl_->data.get());
  return Match{ends[0], ends[1]};
}

}  // namespace llm
