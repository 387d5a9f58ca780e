# One target per folder of lib/: a target sees the folders it may include, and nothing else.

add_library(llm_options INTERFACE)
target_compile_options(llm_options INTERFACE -Wall -Wextra -Wconversion -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(llm_options INTERFACE -Wno-restrict)  # false alarms on "text" + std::string, GCC bug 105651
endif()
# Errors with the compilers that are tested; a new warning of another one must not stop a build.
string(REGEX MATCH "^[0-9]+" compiler_major "${CMAKE_CXX_COMPILER_VERSION}")
if(LLM_WERROR AND "${CMAKE_CXX_COMPILER_ID} ${compiler_major}" MATCHES "^(GNU 12|Clang 14)$")
  target_compile_options(llm_options INTERFACE -Werror)
endif()
if(LLM_SANITIZE)
  string(REPLACE ";" "," sanitizers "${LLM_SANITIZE}")
  target_compile_options(llm_options INTERFACE -fsanitize=${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(llm_options INTERFACE -fsanitize=${sanitizers})
endif()
target_include_directories(llm_options INTERFACE ${CMAKE_SOURCE_DIR}/lib)

# llm_layer(NAME dependency...): a static library llm_NAME of every .cpp file directly in the current folder.
function(llm_layer name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(llm_${name} STATIC ${sources})
  target_link_libraries(llm_${name} PUBLIC llm_options ${ARGN})
endfunction()

# llm_app(NAME dependency...): a program of every .cpp file in the current folder, installed to bin.
function(llm_app name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE llm_options ${ARGN})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# llm_test(NAME dependency...): a Catch2 program of every .cpp file in the current folder, one ctest entry.
function(llm_test name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_executable(test_${name} ${sources})
  target_link_libraries(test_${name} PRIVATE llm_options llm_test_support ${ARGN})
  add_test(NAME ${name} COMMAND test_${name})
  # Tests run beside others: threads that wait for each other must not spin.
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 SKIP_REGULAR_EXPRESSION "^SKIPPED:"
                                          ENVIRONMENT OMP_WAIT_POLICY=passive)
endfunction()
