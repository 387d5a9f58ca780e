#include "backend/cuda/gemm.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace llm::cuda {
namespace {

/// What cuBLASLt may use beside the operands: its documentation's advice for this generation.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void check_blas(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorKind::Device, "cuBLASLt, " + std::string(doing) + ": status " + std::to_string(int{status}));
}

/// The functions that are used, by name.
struct Library {
  void* handle = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;

  bool load(std::string& why_not) {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
      handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle != nullptr) break;
    }
    if (handle == nullptr) {
      why_not = "libcublasLt.so.13 (or .12) is not installed";
      return false;
    }
    return get(create, "cublasLtCreate", why_not) && get(destroy, "cublasLtDestroy", why_not) &&
           get(version, "cublasLtGetVersion", why_not) && get(matmul, "cublasLtMatmul", why_not) &&
           get(desc_create, "cublasLtMatmulDescCreate", why_not) &&
           get(desc_destroy, "cublasLtMatmulDescDestroy", why_not) &&
           get(desc_set, "cublasLtMatmulDescSetAttribute", why_not) &&
           get(layout_create, "cublasLtMatrixLayoutCreate", why_not) &&
           get(layout_destroy, "cublasLtMatrixLayoutDestroy", why_not) &&
           get(preference_create, "cublasLtMatmulPreferenceCreate", why_not) &&
           get(preference_destroy, "cublasLtMatmulPreferenceDestroy", why_not) &&
           get(preference_set, "cublasLtMatmulPreferenceSetAttribute", why_not) &&
           get(heuristic, "cublasLtMatmulAlgoGetHeuristic", why_not);
  }

 private:
  template <class F>
  bool get(F& function, const char* name, std::string& why_not) {
    function = reinterpret_cast<F>(dlsym(handle, name));
    if (function == nullptr) why_not = std::string("libcublasLt has no ") + name;
    return function != nullptr;
  }
};

/// (operands, n, rows, k, ldy)
using Key = std::tuple<DType, int, int, int, int>;

/// Everything about a product but its pointers.
struct Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulAlgo_t algo{};
};

}  // namespace

struct Gemm::Impl {
  Library library;
  cublasLtHandle_t handle = nullptr;
  DeviceBuffer workspace;
  std::map<Key, Plan> plans;

  ~Impl() {
    for (auto& [key, plan] : plans) {
      library.layout_destroy(plan.w);
      library.layout_destroy(plan.x);
      library.layout_destroy(plan.y);
      library.desc_destroy(plan.desc);
    }
    if (handle != nullptr) library.destroy(handle);
  }

  /// Row-major matrices are column-major ones transposed: y^T [n x rows] = w [k x n]^T times x^T [k x rows].
  const Plan& plan(const Key& key) {
    const auto found = plans.find(key);
    if (found != plans.end()) return found->second;
    const auto [operands, n, rows, k, ldy] = key;
    const cudaDataType_t type = operands == DType::F16 ? CUDA_R_16F : CUDA_R_32F;
    Plan p;
    check_blas(library.desc_create(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_blas(library.desc_set(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
               "describing a product");
    check_blas(library.layout_create(&p.w, type, static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(n), k),
               "describing a matrix");
    check_blas(library.layout_create(&p.x, type, static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(rows), k),
               "describing a matrix");
    check_blas(
        library.layout_create(&p.y, CUDA_R_32F, static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(rows), ldy),
        "describing a matrix");
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(library.preference_create(&preference), "asking for an algorithm");
    const std::size_t bytes = kWorkspaceBytes;
    cublasLtMatmulHeuristicResult_t result{};
    int n_results = 0;
    cublasStatus_t status =
        library.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    const std::uint32_t alignment = 16;  // of chunks of rows inside a result; the default promises 256
    for (const auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      if (status == CUBLAS_STATUS_SUCCESS)
        status = library.preference_set(preference, which, &alignment, sizeof alignment);
    }
    if (status == CUBLAS_STATUS_SUCCESS)
      status = library.heuristic(handle, p.desc, p.w, p.x, p.y, p.y, preference, 1, &result, &n_results);
    library.preference_destroy(preference);
    check_blas(status, "asking for an algorithm");
    check(n_results > 0, "cuBLASLt has an algorithm for a plain product");
    p.algo = result.algo;
    return plans.emplace(key, p).first->second;
  }
};

Gemm::Gemm(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gemm::~Gemm() = default;

std::unique_ptr<Gemm> Gemm::load(std::string& why_not) {
  auto impl = std::make_unique<Impl>();
  if (!impl->library.load(why_not)) return nullptr;
  check_blas(impl->library.create(&impl->handle), "starting");
  impl->workspace = DeviceBuffer(kWorkspaceBytes);
  return std::unique_ptr<Gemm>(new Gemm(std::move(impl)));
}

void Gemm::run(DType operands, const void* w, const void* x, float* y, int n, int rows, int k, int ldy,
               cudaStream_t stream) {
  check(operands == DType::F16 || operands == DType::F32, "operands of a library product are F16 or F32");
  const Plan& p = impl_->plan({operands, n, rows, k, ldy});
  const float one = 1, zero = 0;
  check_blas(impl_->library.matmul(impl_->handle, p.desc, &one, w, p.w, x, p.x, &zero, y, p.y, y, p.y, &p.algo,
                                   impl_->workspace.data(), kWorkspaceBytes, stream),
             "multiplying");
}

std::string Gemm::describe() const { return "cuBLASLt " + std::to_string(impl_->library.version()); }

}  // namespace llm::cuda
