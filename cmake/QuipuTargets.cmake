# Flags and helpers shared by every target.

get_filename_component(QUIPU_ROOT "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)

find_program(QUIPU_CCACHE ccache)
if(QUIPU_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the clone count as relative, so that clones share what one of them compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${QUIPU_ROOT} CCACHE_NOHASHDIR=1
                                  ${QUIPU_CCACHE})
endif()

add_library(quipu_flags INTERFACE)
target_compile_features(quipu_flags INTERFACE cxx_std_20)
target_include_directories(quipu_flags INTERFACE ${QUIPU_ROOT}/src ${QUIPU_ROOT}/include)
target_compile_options(quipu_flags INTERFACE -Wall -Wextra -Wconversion -Wno-sign-conversion -Werror
                                             # The contract on numbers: no contraction, no reassociation
                                             # the source does not spell out.
                                             -ffp-contract=off
                                             # Names of files in messages are relative to the root.
                                             -fmacro-prefix-map=${QUIPU_ROOT}/=)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports false positives inside libstdc++ and GoogleTest with these two.
  target_compile_options(quipu_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized -Wno-psabi)
endif()
if(QUIPU_SANITIZE)
  target_compile_options(quipu_flags INTERFACE -fsanitize=${QUIPU_SANITIZE} -fno-omit-frame-pointer
                                               -fno-sanitize-recover=all)
  target_link_options(quipu_flags INTERFACE -fsanitize=${QUIPU_SANITIZE})
  # Linking is an eighth of the time of such a build with the usual linker.
  find_program(QUIPU_LLD ld.lld)
  if(QUIPU_LLD)
    target_link_options(quipu_flags INTERFACE -fuse-ld=lld)
  endif()
  if(QUIPU_SANITIZE MATCHES "address")
    # A seventh of the time to compile, and the address sanitizer stops at the same accesses.
    target_compile_options(quipu_flags INTERFACE -fno-sanitize=null,object-size,vptr)
  endif()
endif()
if(QUIPU_FUZZ AND CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND QUIPU_SANITIZE MATCHES "address")
  # The fuzzer sees which branches an input takes only in code built so.
  target_compile_options(quipu_flags INTERFACE -fsanitize=fuzzer-no-link)
  set(QUIPU_UNSEEN -fno-sanitize=fuzzer-no-link)  # for what no fuzzer runs, and for what has no branches to see
endif()

# quipu_unity(target files): compiles the sources of a target that many together. Half as many would take a fifth longer
# on two cores: headers and templates are repeated in each batch.
function(quipu_unity target files)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${QUIPU_UNITY} UNITY_BUILD_BATCH_SIZE ${files})
endfunction()

# A batch takes up to 1.1 GB to compile: where memory is short, fewer at a time.
cmake_host_system_information(RESULT megabytes QUERY TOTAL_PHYSICAL_MEMORY)
math(EXPR batches "${megabytes} / 1200 + 1")
set_property(GLOBAL APPEND PROPERTY JOB_POOLS compile=${batches})
set(CMAKE_JOB_POOL_COMPILE compile)

# quipu_library(name [FAST] [UNHURRIED|SERIAL] [DEPENDS lib...]): every .cpp below the current folder, as one static
# library. FAST ones have loops over numbers or bytes; the others take a fifth less time to compile with -O2 than with
# Release's -O3. UNHURRIED ones spend little of a test's time: sanitizer builds do not optimise them. Nor does that of
# the thread sanitizer optimise SERIAL ones, which start no threads and have no tests of their own there.
function(quipu_library name)
  cmake_parse_arguments(ARG "FAST;UNHURRIED;SERIAL" "" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(sources)
    add_library(quipu_${name} STATIC ${sources})
    target_link_libraries(quipu_${name} PUBLIC quipu_flags ${ARG_DEPENDS})
    quipu_unity(quipu_${name} 12)
    if(NOT ARG_FAST)
      target_compile_options(quipu_${name} PRIVATE $<$<CONFIG:Release>:-O2>)
    endif()
    if((ARG_UNHURRIED AND QUIPU_SANITIZE) OR (ARG_SERIAL AND QUIPU_SANITIZE STREQUAL "thread"))
      target_compile_options(quipu_${name} PRIVATE -O0)
    endif()
  else()
    add_library(quipu_${name} INTERFACE)
    target_link_libraries(quipu_${name} INTERFACE quipu_flags ${ARG_DEPENDS})
  endif()
endfunction()

# The helpers of the tests; the only file that knows where the sources lie, so that the others compile to the
# same in every clone.
function(quipu_test_support)
  if(NOT TARGET quipu_test_support)
    add_library(quipu_test_support STATIC ${QUIPU_ROOT}/tests/support.cpp)
    target_link_libraries(quipu_test_support PUBLIC quipu_flags)
    target_include_directories(quipu_test_support PUBLIC ${QUIPU_ROOT}/tests)
    target_compile_definitions(quipu_test_support PRIVATE QUIPU_SOURCE_DIR="${QUIPU_ROOT}")
  endif()
endfunction()

set(QUIPU_TEST_SHARDS 6 CACHE STRING "Processes that a test program's tests are spread over in sanitizer builds")

# quipu_test(name DEPENDS lib...): every *_test.cpp of the current folder, as one program known to ctest.
function(quipu_test name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(NOT sources)
    return()
  endif()
  quipu_test_support()
  add_executable(${name}_test ${sources})
  quipu_unity(${name}_test 10)
  target_link_libraries(${name}_test PRIVATE ${ARG_DEPENDS} quipu_test_support GTest::gtest GTest::gtest_main)
  # What is tested keeps its own flags; the tests themselves would take half as long again to compile with -O3.
  if(QUIPU_SANITIZE)
    target_compile_options(${name}_test PRIVATE -O0 ${QUIPU_UNSEEN})
  else()
    target_compile_options(${name}_test PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(QUIPU_SANITIZE)
    # A process for each test would cost as much time as the tests.
    foreach(shard RANGE 1 ${QUIPU_TEST_SHARDS})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${name}.${shard} COMMAND ${name}_test --gtest_brief=1)
      set_tests_properties(${name}.${shard} PROPERTIES TIMEOUT 900 LABELS ${name}
                           ENVIRONMENT "GTEST_TOTAL_SHARDS=${QUIPU_TEST_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
  else()
    gtest_discover_tests(${name}_test TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT 600 LABELS ${name})
  endif()
endfunction()
