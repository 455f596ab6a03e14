# What all targets share, and one function for each kind of target.

add_library(inferscale_options INTERFACE)
target_compile_features(inferscale_options INTERFACE cxx_std_20)
target_include_directories(inferscale_options INTERFACE "${CMAKE_SOURCE_DIR}/src")
target_compile_options(inferscale_options INTERFACE -Wall -Wextra -Wconversion -Wshadow)
if(INFERSCALE_WERROR)
  target_compile_options(inferscale_options INTERFACE -Werror)
endif()
if(INFERSCALE_SANITIZE)
  add_compile_options(-fsanitize=${INFERSCALE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${INFERSCALE_SANITIZE})
endif()
if(INFERSCALE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Under sanitizers GCC 12 sees uninitialised values in the standard library and in Boost.
  add_compile_options(-Wno-maybe-uninitialized)
  if(INFERSCALE_SANITIZE STREQUAL "thread")
    add_compile_options(-Wno-tsan)  # Boost.Asio uses fences, which ThreadSanitizer does not follow
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fpch-preprocess)  # lets ccache see a precompiled header
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(inferscale_options INTERFACE -Wthread-safety)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# inferscale_library(name SOURCES a.cc ... LIBS other ...): one room of src/.
function(inferscale_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC inferscale_options ${ARG_LIBS})
endfunction()

# inferscale_test(name SOURCES ... LIBS ... [LABELS ...] [TIMEOUT seconds]): a GoogleTest program, one ctest
# entry per test. Labels: `unit` (the default: quick, no model), `model` (loads one), `crash` (kills processes),
# `threads` (for ThreadSanitizer too), `slow` (not for sanitizers). Target tests-LABEL builds those of one label.
function(inferscale_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE inferscale_options ${ARG_LIBS} GTest::gtest GTest::gmock
                                        GTest::gtest_main)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(INFERSCALE_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  foreach(label ${ARG_LABELS})
    if(NOT TARGET tests-${label})
      add_custom_target(tests-${label})
    endif()
    add_dependencies(tests-${label} ${name})
  endforeach()
  # Names without the parameters' bytes: there may be addresses among them, which change with every run.
  gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  # gtest_discover_tests() flattens lists and would keep the first label only, so the labels follow it.
  set(labels "${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake")
  file(WRITE "${labels}"
       "if(${name}_TESTS)\n  set_tests_properties(\${${name}_TESTS} PROPERTIES LABELS \"${ARG_LABELS}\")\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels}")
endfunction()

# inferscale_benchmark(name SOURCES ... LIBS ...): a Google Benchmark program.
function(inferscale_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE inferscale_options ${ARG_LIBS} benchmark::benchmark)
endfunction()

# inferscale_fuzz(name SOURCES ... LIBS ...): a libFuzzer program; its seeds are fuzz/corpus/<name>/.
function(inferscale_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE inferscale_options ${ARG_LIBS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
endfunction()
