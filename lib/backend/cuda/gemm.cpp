#include "backend/cuda/gemm.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <future>
#include <map>
#include <utility>

#include "backend/cuda/recording.h"
#include "base/error.h"

namespace llm::cuda {
namespace {

/// What cuBLASLt may use beside the operands: its documentation's advice for this generation.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void check_blas(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorKind::Device, "cuBLASLt, " + std::string(doing) + ": status " + std::to_string(int{status}));
}

/// Long steps of a batch differ in their numbers of tokens: each is a plan for every shape of the model's matrices.
constexpr std::size_t kMostPlans = 8192;

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

  /// The first of its names that is there and starts.
  bool load(cublasLtHandle_t& started, std::string& why_not) {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
      std::string reason;
      if (open(name, started, reason)) return true;
      if (handle != nullptr) dlclose(std::exchange(handle, nullptr));
      why_not += (why_not.empty() ? "" : "; ") + reason;
    }
    return false;
  }

 private:
  bool open(const char* name, cublasLtHandle_t& started, std::string& why_not) {
    handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      why_not = dlerror();  // which names the library
      return false;
    }
    if (!get_functions(why_not)) return false;
    const cublasStatus_t status = create(&started);
    if (status != CUBLAS_STATUS_SUCCESS)
      why_not = std::string(name) + " does not start: status " + std::to_string(int{status});
    return status == CUBLAS_STATUS_SUCCESS;
  }
  bool get_functions(std::string& why_not) {
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
  template <class F>
  bool get(F& function, const char* name, std::string& why_not) {
    function = reinterpret_cast<F>(dlsym(handle, name));
    if (function == nullptr) why_not = std::string("libcublasLt has no ") + name;
    return function != nullptr;
  }
};

/// CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F: a factor for each row of an operand. CUDA 12.8's header has no name for
/// it.
constexpr std::int32_t kFactorsOfRows = 3;

enum class Operands : std::uint8_t { F16, F32, F8 };
using Key = std::pair<Operands, GemmShape>;

Operands operands_of(DType t) {
  check(t == DType::F16 || t == DType::F32 || t == DType::F8_E4M3, "a type that the library multiplies");
  return t == DType::F16 ? Operands::F16 : t == DType::F32 ? Operands::F32 : Operands::F8;
}
cudaDataType_t type_of(Operands o) {
  return o == Operands::F16 ? CUDA_R_16F : o == Operands::F32 ? CUDA_R_32F : CUDA_R_8F_E4M3;
}

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
  std::future<void> prepared;  ///< while prepare() runs, alone with the handle

  ~Impl() {
    if (prepared.valid()) prepared.wait();
    release_plans();
    if (handle != nullptr) library.destroy(handle);
  }

  void release_plans() {
    for (auto& [key, plan] : plans) release(plan);
    plans.clear();
  }
  void release(Plan& p) const {
    for (const cublasLtMatrixLayout_t layout : {p.w, p.x, p.y}) library.layout_destroy(layout);
    library.desc_destroy(p.desc);
  }

  /// Row-major matrices are column-major ones transposed: y^T [n x rows] = w [k x n]^T times x^T [k x rows].
  const Plan& plan(Operands operands, const GemmShape& shape) {
    if (prepared.valid()) prepared.get();
    const auto found = plans.find({operands, shape});
    if (found != plans.end()) return found->second;
    if (plans.size() == kMostPlans) release_plans();
    Plan p;
    if (const cublasStatus_t status = make(operands, shape, p); status != CUBLAS_STATUS_SUCCESS) {
      release(p);
      const std::string sizes = std::to_string(shape.n) + " x " + std::to_string(shape.k) + " with " +
                                std::to_string(shape.rows) + " columns";
      check_blas(status, ("asking for an algorithm of " + sizes).c_str());
    }
    return plans.emplace(Key{operands, shape}, p).first->second;
  }

  /// What was made is `p`'s, also of a product that there is no algorithm for.
  cublasStatus_t make(Operands operands, const GemmShape& s, Plan& p) {
    const auto size = [](int n) { return static_cast<std::uint64_t>(n); };
    check_blas(library.desc_create(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    check_blas(library.layout_create(&p.w, type_of(operands), size(s.k), size(s.n), s.k), "describing a matrix");
    check_blas(library.layout_create(&p.x, type_of(operands), size(s.k), size(s.rows), s.k), "describing a matrix");
    check_blas(library.layout_create(&p.y, CUDA_R_32F, size(s.n), size(s.rows), s.ldy), "describing a matrix");
    set(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (operands == Operands::F8) {
      for (const auto which : {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE}) {
        const cublasStatus_t status = library.desc_set(p.desc, which, &kFactorsOfRows, sizeof kFactorsOfRows);
        if (status != CUBLAS_STATUS_SUCCESS) return status;
      }
      set_scales(p, some_scales(), some_scales());
    }
    return choose_algorithm(p);
  }

  cublasStatus_t choose_algorithm(Plan& p) {
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
    p.algo = result.algo;
    return status == CUBLAS_STATUS_SUCCESS && n_results == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : status;
  }

  /// Recorded kernels are loaded and not run, so that any memory will do. What cannot be made, or not loaded, is for
  /// whoever wants that product to report.
  void prepare(Operands operands, const GemmShape& shape) {
    Plan p;
    try {
      if (make(operands, shape, p) == CUBLAS_STATUS_SUCCESS) {
        const Stream stream;
        auto* const y = reinterpret_cast<float*>(workspace.data());
        Recording().record(stream.get(), [&] { multiply(p, y, y, y, stream.get()); });
      }
    } catch (const Error&) {
      cudaGetLastError();
    }
    release(p);
  }

  template <class T>
  void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which, const T& value) {
    check_blas(library.desc_set(desc, which, &value, sizeof value), "describing a product");
  }
  void set_scales(const Plan& p, const float* w, const float* x) {
    set(p.desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(w));
    set(p.desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(x));
  }
  /// An address that an algorithm may be asked for with.
  const float* some_scales() const { return reinterpret_cast<const float*>(workspace.data()); }

  /// y = kept * y + factor * the product.
  void multiply(const Plan& p, const void* w, const void* x, float* y, cudaStream_t stream, float factor = 1,
                float kept = 0) {
    check_blas(library.matmul(handle, p.desc, &factor, w, p.w, x, p.x, &kept, y, p.y, y, p.y, &p.algo, workspace.data(),
                              kWorkspaceBytes, stream),
               "multiplying");
  }
};

Gemm::Gemm(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gemm::~Gemm() = default;

std::unique_ptr<Gemm> Gemm::load(int device, std::string& why_not) {
  auto impl = std::make_unique<Impl>();
  use_device(device);
  if (!impl->library.load(impl->handle, why_not)) return nullptr;
  impl->workspace = DeviceBuffer(kWorkspaceBytes);
  return std::unique_ptr<Gemm>(new Gemm(std::move(impl)));
}

void Gemm::prepare(DType operands, std::vector<GemmShape> shapes) {
  impl_->prepared =
      std::async([this, operands = operands_of(operands), device = current_device(), shapes = std::move(shapes)] {
        use_device(device);
        for (const GemmShape& shape : shapes) impl_->prepare(operands, shape);
      });
}

void Gemm::run(DType operands, const void* w, const void* x, float* y, const GemmShape& shape, cudaStream_t stream) {
  check(operands == DType::F16 || operands == DType::F32, "operands of a library product are F16 or F32");
  const Plan& p = impl_->plan(operands_of(operands), shape);
  impl_->multiply(p, w, x, y, stream);
}

void Gemm::add(const void* w, const void* x, float factor, float* y, const GemmShape& shape, cudaStream_t stream) {
  const Plan& p = impl_->plan(Operands::F16, shape);
  impl_->multiply(p, w, x, y, stream, factor, 1);
}

void Gemm::run_f8(const F8Rows& w, const F8Rows& x, float* y, const GemmShape& shape, cudaStream_t stream) {
  const Plan& p = impl_->plan(Operands::F8, shape);
  impl_->set_scales(p, w.scales, x.scales);
  impl_->multiply(p, w.rows, x.rows, y, stream);
}

std::string Gemm::f8_refusal() {
  const GemmShape shape{.n = 256, .rows = 128, .k = 256, .ldy = 256};
  Plan p;
  const cublasStatus_t status = impl_->make(Operands::F8, shape, p);
  impl_->release(p);
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return describe() + " multiplies no rows of FP8 with factors of their own here (status " +
         std::to_string(int{status}) + "): that needs compute capability 9.0 and CUDA 12.9 or newer";
}

std::string Gemm::describe() const { return "cuBLASLt " + std::to_string(impl_->library.version()); }

}  // namespace llm::cuda
