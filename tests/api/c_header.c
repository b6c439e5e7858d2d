/* The C header is C: this file is compiled by the C compiler. */
#include "quipu/quipu.h"

int quipu_test_abi_version_seen_by_c(void) { return QUIPU_ABI_VERSION; }
size_t quipu_test_options_size_seen_by_c(void) { return sizeof(quipu_generate_options); }
