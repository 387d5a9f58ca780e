# The kernel sources of lib/backend/cpu/kernels, compiled once per instruction set: LLM_ISA names the set in the code.
set(LLM_ISA_FLAGS_portable "")
set(LLM_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(LLM_ISA_FLAGS_avx2vnni -mavx2 -mfma -mf16c -mavxvnni)
# What Cascade Lake has, the first with VNNI in wide registers: no VBMI. base/instruction_sets.cpp asks for the same.
set(LLM_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx2 -mfma -mf16c -mprefer-vector-width=512)
set(LLM_ISA_FLAGS_avx512bf16 ${LLM_ISA_FLAGS_avx512} -mavx512bf16)
set(LLM_ISA_FLAGS_amx ${LLM_ISA_FLAGS_avx512bf16} -mamx-tile -mamx-int8 -mamx-bf16)
set(LLM_ISA_FLAGS_neon "")  # every aarch64 has it
set(LLM_ISA_FLAGS_neondotprod -march=armv8.2-a+dotprod)

# A set with a base has sources of its own only where it differs and takes the other kernels from the base's table:
# compiling all of them again would take minutes. LLM_ISA_<base> is defined for it as well.
set(LLM_ISA_BASE_avx512bf16 avx512)
set(LLM_ISA_SOURCES_avx512bf16 bf16_linear.cpp table.cpp)
set(LLM_ISA_BASE_amx avx512)
set(LLM_ISA_SOURCES_amx bf16_linear_amx.cpp quant_linear_amx.cpp table.cpp)
set(LLM_ISA_BASE_neondotprod neon)
set(LLM_ISA_SOURCES_neondotprod quant_linear_32.cpp quant_linear_codes.cpp quant_linear_grid.cpp quant_linear_k.cpp
    attention.cpp attention_floats.cpp attention_keys.cpp attention_values.cpp table.cpp)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(LLM_ISAS portable avx2 avx2vnni avx512 avx512bf16 amx)
  if(LLM_SANITIZE)
    set(LLM_ISAS portable avx512 avx512bf16 amx)  # the same sources at their narrowest and widest: instrumented ones take minutes each
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(LLM_ISAS portable neon neondotprod)
else()
  set(LLM_ISAS portable)
endif()

# llm_kernels(TARGET [SET...]): adds the kernel sources of the current folder to TARGET, once per instruction set: all of
# LLM_ISAS, or those of them that are named.
function(llm_kernels target)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_amx\\.cpp$")  # of one set alone
  foreach(isa ${LLM_ISAS})
    if(ARGN AND NOT isa IN_LIST ARGN)
      continue()
    endif()
    set(own ${sources})
    set(base ${LLM_ISA_BASE_${isa}})
    if(base)
      list(TRANSFORM LLM_ISA_SOURCES_${isa} PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/kernels/ OUTPUT_VARIABLE own)
    endif()
    add_library(${target}_${isa} OBJECT ${own})
    target_link_libraries(${target}_${isa} PRIVATE llm_options llm_tensor)
    set_target_properties(${target}_${isa} PROPERTIES UNITY_BUILD OFF)  # minutes in one file
    if(NOT isa STREQUAL "portable")
      target_link_libraries(${target}_${isa} PRIVATE llm_wide_kernels)
    endif()
    # Sanitizers make minutes of a file's -O3.
    target_compile_options(${target}_${isa} PRIVATE $<IF:$<BOOL:${LLM_SANITIZE}>,-O1,-O3> ${LLM_ISA_FLAGS_${isa}})
    target_compile_definitions(${target}_${isa} PRIVATE LLM_ISA=${isa} LLM_ISA_${isa} $<$<BOOL:${base}>:LLM_ISA_${base}>)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${isa}>)
    target_compile_definitions(${target} PUBLIC LLM_HAS_ISA_${isa})
  endforeach()
endfunction()
