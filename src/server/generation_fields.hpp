// Fields that the generating dialects share: sampling, limits, stop strings.
#pragma once

#include "server/models.hpp"
#include "server/request_fields.hpp"
#include "server/request_model.hpp"

namespace quipu::server {

/// Reads seed, temperature, top_k, top_p, min_p and the other sampling parameters, stop and logit_bias over
/// the model's defaults, under the names that OpenAI and llama.cpp give them. Without a seed (or with -1) a
/// random one is drawn. Throws a 400 that names the field and its range.
engine::Request read_generation_fields(const Fields& fields, const Served& served);

/// The stop strings of field `name`: a string or a list of at most 64.
std::vector<std::string> read_stop(const Fields& fields, std::string_view name);

/// Where and when: `id_slot` (llama.cpp's: the place to run in, -1: any) and `priority` (-100 to 100, higher
/// ones start first).
void read_placement(const Fields& fields, GenerationRequest& request);

/// Refuses fields that ask for something this server cannot do, rather than answer as if they were not there.
void refuse_field(const Fields& fields, std::string_view name, std::string_view reason);

}  // namespace quipu::server
