#include "backend/cuda/gpu_code.h"

#include "support/catch.h"

using llm::has_code_for;

// Expected values follow the CUDA programming guide: machine code runs within a major number, upwards; PTX on all that
// is newer; architecture-specific code on its own capability.
TEST_CASE("a program has code for the GPUs that its architectures name", "[gpus]") {
  const char* const all = "80-real 86-real 89-real 90a-real 100-real 120";
  for (const auto& [major, minor] :
       {std::pair{8, 0}, {8, 6}, {8, 7}, {8, 9}, {9, 0}, {10, 0}, {10, 3}, {12, 0}, {12, 1}, {13, 0}})
    CHECK(has_code_for(all, major, minor));
  for (const auto& [major, minor] : {std::pair{7, 5}, {11, 0}}) CHECK_FALSE(has_code_for(all, major, minor));

  CHECK(has_code_for("90a-real", 9, 0));
  CHECK_FALSE(has_code_for("90a-real", 8, 0));
  CHECK_FALSE(has_code_for("90a-real", 10, 0));
  CHECK_FALSE(has_code_for("86-real", 8, 0));
  CHECK(has_code_for("80-virtual", 9, 0));
  CHECK_FALSE(has_code_for("", 9, 0));
}
