# One target per folder of lib/: a target sees the folders it may include, and nothing else.

add_library(llm_options INTERFACE)
target_compile_options(llm_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(llm_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)  # false alarms on "text" + std::string, GCC bug 105651
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(llm_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # takes united sources for headers
endif()
# Errors with the compilers that are tested; a new warning of another one must not stop a build.
string(REGEX MATCH "^[0-9]+" compiler_major "${CMAKE_CXX_COMPILER_VERSION}")
if(LLM_WERROR AND "${CMAKE_CXX_COMPILER_ID} ${compiler_major}" MATCHES "^(GNU 12|Clang 14)$")
  target_compile_options(llm_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(LLM_SANITIZE)
  string(REPLACE ";" "," sanitizers "${LLM_SANITIZE}")
  target_compile_options(llm_options INTERFACE -fsanitize=${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(llm_options INTERFACE -fsanitize=${sanitizers})
endif()
target_include_directories(llm_options INTERFACE ${CMAKE_SOURCE_DIR}/lib)

# Checks of every pointer take half of the time that a wide instruction set's kernels compile; the portable set's have
# them. Linked behind llm_options, since the later option counts.
add_library(llm_wide_kernels INTERFACE)
if(LLM_SANITIZE MATCHES "undefined")
  target_compile_options(llm_wide_kernels INTERFACE -fno-sanitize=null,alignment,object-size)
endif()

# llm_layer(NAME dependency...): a static library llm_NAME of every .cpp file directly in the current folder.
function(llm_layer name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(llm_${name} STATIC ${sources})
  target_link_libraries(llm_${name} PUBLIC llm_options ${ARGN})
endfunction()

# llm_pages(NAME): the manual page and the completions of a program, printed by itself, built by `all` and installed.
function(llm_pages name)
  set(pages ${CMAKE_BINARY_DIR}/share)
  set(man ${pages}/man/${name}.1.gz)
  set(bash ${pages}/bash/${name})
  set(zsh ${pages}/zsh/_${name})
  set(fish ${pages}/fish/${name}.fish)
  string(JOIN " " run ${CMAKE_CROSSCOMPILING_EMULATOR} ./${name})
  file(MAKE_DIRECTORY ${pages}/man ${pages}/bash ${pages}/zsh ${pages}/fish)
  add_custom_command(OUTPUT ${man} ${bash} ${zsh} ${fish} DEPENDS ${name}
    COMMAND sh -c "${run} --man-page | gzip -9n > ${man}"
    COMMAND ${name} --completion bash > ${bash}
    COMMAND ${name} --completion zsh > ${zsh}
    COMMAND ${name} --completion fish > ${fish}
    WORKING_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} COMMENT "Manual page and completions of ${name}" VERBATIM)
  add_custom_target(${name}-pages ALL DEPENDS ${man} ${bash} ${zsh} ${fish})
  install(FILES ${man} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${bash} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  # Where zsh looks: distributions' packages have a folder of their own, which is known when the prefix is.
  install(CODE "
    set(folder site-functions)
    if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
      set(folder vendor-completions)
    endif()
    file(INSTALL \"${zsh}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/\${folder}\")")
  install(FILES ${fish} DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endfunction()

# llm_app(NAME dependency...): a program of every .cpp file in the current folder, installed to bin with its pages.
function(llm_app name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE llm_options ${ARGN})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  llm_pages(${name})
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

# llm_cpu_test(NAME): the programs that this test starts see no GPU, which they would choose, and give the CPU's text.
function(llm_cpu_test name)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT CUDA_VISIBLE_DEVICES=)
endfunction()
