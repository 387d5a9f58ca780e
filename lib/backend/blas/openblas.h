// OpenBLAS, loaded when the first blas backend is made: its own start takes address space of every program that is
// linked with it, and where that is limited never ends.
#pragma once

#include <cblas.h>

namespace llm {

struct OpenBlas {
  decltype(&cblas_sgemv) sgemv = nullptr;
  decltype(&cblas_sgemm) sgemm = nullptr;
  decltype(&openblas_get_corename) core_name = nullptr;
  decltype(&openblas_set_num_threads) set_threads = nullptr;
};

/// Throws ErrorKind::Device where it is not installed, ErrorKind::Memory where it has no room.
const OpenBlas& openblas();

}  // namespace llm
