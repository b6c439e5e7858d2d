# Flags and helpers shared by every target.

get_filename_component(QUIPU_ROOT "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)

find_program(QUIPU_CCACHE ccache)
if(QUIPU_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${QUIPU_CCACHE})
endif()

add_library(quipu_flags INTERFACE)
target_compile_features(quipu_flags INTERFACE cxx_std_20)
target_include_directories(quipu_flags INTERFACE ${QUIPU_ROOT}/src ${QUIPU_ROOT}/include)
target_compile_options(quipu_flags INTERFACE -Wall -Wextra -Wconversion -Wno-sign-conversion -Werror
                                             # The contract on numbers: no contraction, no reassociation
                                             # the source does not spell out.
                                             -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports false positives inside libstdc++ and GoogleTest with these two.
  target_compile_options(quipu_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized -Wno-psabi)
endif()
if(QUIPU_SANITIZE)
  target_compile_options(quipu_flags INTERFACE -fsanitize=${QUIPU_SANITIZE} -fno-omit-frame-pointer
                                               -fno-sanitize-recover=all)
  target_link_options(quipu_flags INTERFACE -fsanitize=${QUIPU_SANITIZE})
  if(QUIPU_SANITIZE MATCHES "address")
    # A seventh of the time to compile, and the address sanitizer stops at the same accesses.
    target_compile_options(quipu_flags INTERFACE -fno-sanitize=null,object-size,vptr)
  endif()
endif()
if(QUIPU_FUZZ AND CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND QUIPU_SANITIZE MATCHES "address")
  # The fuzzer sees which branches an input takes only in code built so.
  target_compile_options(quipu_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# quipu_library(name [DEPENDS lib...]): every .cpp below the current folder, as one static library.
function(quipu_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(sources)
    add_library(quipu_${name} STATIC ${sources})
    target_link_libraries(quipu_${name} PUBLIC quipu_flags ${ARG_DEPENDS})
    set_target_properties(quipu_${name} PROPERTIES UNITY_BUILD ${QUIPU_UNITY} UNITY_BUILD_BATCH_SIZE 6)
  else()
    add_library(quipu_${name} INTERFACE)
    target_link_libraries(quipu_${name} INTERFACE quipu_flags ${ARG_DEPENDS})
  endif()
endfunction()

# quipu_test(name DEPENDS lib...): every *_test.cpp of the current folder, as one program known to ctest.
function(quipu_test name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  set_target_properties(${name}_test PROPERTIES UNITY_BUILD ${QUIPU_UNITY} UNITY_BUILD_BATCH_SIZE 5)
  target_link_libraries(${name}_test PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gtest_main)
  target_include_directories(${name}_test PRIVATE ${QUIPU_ROOT}/tests)
  target_compile_definitions(${name}_test PRIVATE QUIPU_SOURCE_DIR="${QUIPU_ROOT}")
  # What is tested keeps its own flags; the tests themselves would take half as long again to compile with -O3.
  if(QUIPU_SANITIZE)
    target_compile_options(${name}_test PRIVATE -O0)
  else()
    target_compile_options(${name}_test PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  gtest_discover_tests(${name}_test TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 600 LABELS ${name})
endfunction()
