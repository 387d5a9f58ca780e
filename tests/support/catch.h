// Catch2 of either major version.
#pragma once

#ifdef LLM_CATCH2_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
