#include "constrain/json_format.h"

namespace llm {
namespace {

// RFC 3339, section 5.6. Years are leap years if they can be divided by 4, whole centuries if by 400. Leap seconds,
// which only a table knows, are left out; T and Z are capital.
const std::string kLeapYear = "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
const std::string kDate =
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2["
    "0-8]))|" +
    kLeapYear + "-02-29)";
const std::string kTime = "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";

// RFC 3339, appendix A: ISO 8601 durations.
const std::string kDurationTime = "T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S)";
const std::string kDurationDate = "(?:\\d{1,9}D|\\d{1,9}M(?:\\d{1,9}D)?|\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?)";

/// At least `fewest` and at most `most` parts of up to `longest` characters, with points between.
std::string dotted(std::string (*part)(int), int longest, int fewest, int most) {
  const std::string one = part(longest);
  return one + "(?:\\." + one + "){" + std::to_string(fewest - 1) + "," + std::to_string(most - 1) + "}";
}

// RFC 1123, section 2.1: labels of at most 63 letters, digits and inner hyphens. RFC 1035, section 2.3.4: 255 bytes in
// all, which are 253 characters. The more parts, the shorter each.
std::string label(int most) { return "[A-Za-z0-9](?:[A-Za-z0-9-]{0," + std::to_string(most - 2) + "}[A-Za-z0-9])?"; }
const std::string kHostname = "(?:" + dotted(label, 63, 1, 3) + "|" + dotted(label, 62, 4, 4) + "|" +
                              dotted(label, 30, 5, 8) + "|" + dotted(label, 14, 9, 16) + ")";

// RFC 5321, sections 4.1.2 and 4.5.3.1, without quoted local parts and address literals: at most 64 characters before
// the @, and 254 in all.
std::string atom(int most) { return "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1," + std::to_string(most) + "}"; }
const std::string kEmail = "(?:" + dotted(atom, 64, 1, 1) + "|" + dotted(atom, 31, 2, 2) + "|" +
                           dotted(atom, 15, 3, 4) + "|" + dotted(atom, 7, 5, 8) + "|" + dotted(atom, 3, 9, 16) +
                           ")@(?:" + dotted(label, 63, 1, 2) + "|" + dotted(label, 62, 3, 3) + "|" +
                           dotted(label, 30, 4, 6) + "|" + dotted(label, 14, 7, 12) + ")";

const std::string kByte = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
const std::string kIpv4 = kByte + "(?:\\." + kByte + "){3}";

/// RFC 4291, section 2.2: eight groups, of which a run may be written as "::".
std::string ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  std::string all = "(?:" + group + ":){7}" + group;
  // `before` groups, "::", at most 7 - before groups.
  for (int before = 0; before <= 7; ++before) {
    const std::string head = before == 0 ? "" : group + "(?::" + group + "){" + std::to_string(before - 1) + "}";
    const int after = 7 - before;
    const std::string tail =
        after == 0 ? "" : "(?:" + group + "(?::" + group + "){0," + std::to_string(after - 1) + "})?";
    all += "|" + head + "::" + tail;
  }
  return "(?:" + all + ")";
}

// RFC 3986, appendix A, with a registered name or an IPv4 address as host.
const std::string kEncoded = "%[0-9A-Fa-f]{2}";
const std::string kPathCharacter = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" + kEncoded + ")";
const std::string kAuthority = "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" + kEncoded + ")*@)?(?:[A-Za-z0-9._~!$&'()*+,;=-]|" +
                               kEncoded + ")*(?::\\d{0,5})?";
const std::string kAbsolutePath = "(?:/" + kPathCharacter + "*)*";
const std::string kQueryAndFragment = "(?:\\?(?:" + kPathCharacter + "|[/?])*)?(?:#(?:" + kPathCharacter + "|[/?])*)?";
const std::string kScheme = "[A-Za-z][A-Za-z0-9+.-]*:";
const std::string kUri = kScheme + "(?://" + kAuthority + kAbsolutePath + "|/(?:" + kPathCharacter + "+" +
                         kAbsolutePath + ")?|" + kPathCharacter + "+" + kAbsolutePath + "|)" + kQueryAndFragment;
const std::string kNoColon = "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" + kEncoded + ")";
const std::string kRelative = "(?://" + kAuthority + kAbsolutePath + "|/(?:" + kPathCharacter + "+" + kAbsolutePath +
                              ")?|" + kNoColon + "+" + kAbsolutePath + "|)" + kQueryAndFragment;

struct Format {
  std::string_view name;
  std::string expression;
};

const Format* formats(std::size_t& n) {
  static const Format table[] = {
      {"date", kDate},
      {"time", kTime},
      {"date-time", kDate + "T" + kTime},
      {"duration", "P(?:" + kDurationDate + "(?:" + kDurationTime + ")?|" + kDurationTime + "|\\d{1,9}W)"},
      {"email", kEmail},
      {"hostname", kHostname},
      {"ipv4", kIpv4},
      {"ipv6", ipv6()},
      {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
      {"uri", kUri},
      {"uri-reference", "(?:" + kUri + "|" + kRelative + ")"},
      // RFC 6901, section 3.
      {"json-pointer", "(?:/(?:[^/~]|~[01])*)*"},
      {"relative-json-pointer", "(?:0|[1-9]\\d{0,15})(?:#|(?:/(?:[^/~]|~[01])*)*)"},
      // OpenAPI's: base64 of RFC 4648, section 4.
      {"byte", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
  };
  n = std::size(table);
  return table;
}

}  // namespace

std::optional<std::string> format_expression(std::string_view format) {
  std::size_t n = 0;
  const Format* table = formats(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (table[i].name == format) return table[i].expression;
  }
  return std::nullopt;
}

std::string known_formats() {
  std::string names;
  std::size_t n = 0;
  const Format* table = formats(n);
  for (std::size_t i = 0; i < n; ++i) names += (i == 0 ? "" : ", ") + std::string(table[i].name);
  return names;
}

}  // namespace llm
