# Everything that the project takes from the distribution. Nothing is fetched or bundled.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)  # checksums
find_path(LIBCSV_INCLUDE_DIR csv.h REQUIRED)
find_library(LIBCSV_LIBRARY csv REQUIRED)
add_library(LibCsv::LibCsv UNKNOWN IMPORTED)
set_target_properties(LibCsv::LibCsv PROPERTIES IMPORTED_LOCATION ${LIBCSV_LIBRARY}
                                                INTERFACE_INCLUDE_DIRECTORIES ${LIBCSV_INCLUDE_DIR})
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)  # configuration files; its headers alone
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(GMPXX REQUIRED IMPORTED_TARGET gmpxx)
pkg_check_modules(LIBEDIT REQUIRED IMPORTED_TARGET libedit)  # the prompt of chats
if(LLM_OPENBLAS)
  # Its header: the library is loaded by the backend that wants it. The OpenMP build, which shares its threads with ours. Debian
  # keeps each build's openblas.pc in a folder of its own and lets an alternative decide which of them is the plain name, so that
  # folder is searched first.
  set(pkg_config_path "$ENV{PKG_CONFIG_PATH}")
  set(ENV{PKG_CONFIG_PATH} "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp/pkgconfig:${pkg_config_path}")
  pkg_search_module(OPENBLAS REQUIRED openblas openblas-openmp blas-openblas)
  pkg_get_variable(openblas_config ${OPENBLAS_MODULE_NAME} openblas_config)
  set(ENV{PKG_CONFIG_PATH} "${pkg_config_path}")
  if(openblas_config AND NOT openblas_config MATCHES "USE_OPENMP=1")
    message(WARNING "This OpenBLAS brings its own threads beside OpenMP's: install its OpenMP build (libopenblas-openmp-dev)")
  endif()
endif()
if(LLM_TESTS)
  find_package(Catch2 REQUIRED)
endif()
