# CUDA 12.8 or newer. The runtime is linked statically and cuBLASLt is loaded while the program runs, so that the binary starts
# on machines without a GPU.
if(LLM_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90a-real 100-real 120)
  endif()
  if(CMAKE_CUDA_ARCHITECTURES MATCHES "(^|;)90(-|;|$)")
    message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES names 90: compute capability 9.0 is compiled as 90a here, for its tensor cores")
  endif()
  enable_language(CUDA)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
    message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} is too old: 12.8 or newer is needed")
  endif()
  if(NOT "cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)  # CMake before 3.26 does not know that nvcc 12 has it
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  find_package(CUDAToolkit 12.8 REQUIRED)
endif()

# llm_cuda_options(TARGET): its .cu files are compiled under the project's rules for floats and warnings.
function(llm_cuda_options target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false -Xcompiler=-Wall,-Wextra>)
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)  # CMake 3.31 would unite the kernels too
  if(CMAKE_CUDA_ARCHITECTURES MATCHES "90a")
    target_compile_definitions(${target} PRIVATE LLM_CUDA_90A)
  endif()
  target_link_libraries(${target} PUBLIC CUDA::cudart_static)
endfunction()
