// One function a file of families.
#pragma once

#include <vector>

#include "convert/family.hpp"

namespace quipu::convert {

std::vector<Family> llama_like();  ///< llama, qwen, granite and others of that block
std::vector<Family> gemma_like();
std::vector<Family> gemma_per_layer();  ///< gemma3n, gemma4: embeddings of each block's own
std::vector<Family> sandwich_normed();  ///< norms after attention and feed-forward: olmo2, exaone4, glm4
std::vector<Family> fused();            ///< one matrix for several: phi3
std::vector<Family> layer_normed();     ///< LayerNorm decoders: gpt2, gptneox, falcon, starcoder2, cohere …
std::vector<Family> mixtures();         ///< sigmoid experts behind dense blocks: glm4moe, dots1
std::vector<Family> ling();             ///< with fused attention and a head of unit columns
std::vector<Family> llama4();
std::vector<Family> t5();        ///< with the encoder alone
std::vector<Family> encoders();  ///< bert

}  // namespace quipu::convert
