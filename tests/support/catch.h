// Catch2 of either major version.
#pragma once

#include <string>

#ifdef LLM_CATCH2_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
inline auto contains(const std::string& text) { return Catch::Matchers::ContainsSubstring(text); }
#else
#include <catch2/catch.hpp>
inline auto contains(const std::string& text) { return Catch::Contains(text); }
#endif
