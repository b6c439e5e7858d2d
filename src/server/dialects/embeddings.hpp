// Vectors and scores of texts in the dialects that have them: one function a route.
#pragma once

#include "server/call.hpp"

namespace quipu::server {

void openai_embeddings(const std::shared_ptr<Call>& call);     ///< POST /v1/embeddings
void llama_cpp_embeddings(const std::shared_ptr<Call>& call);  ///< POST /embedding, /embeddings
void ollama_embed(const std::shared_ptr<Call>& call);          ///< POST /api/embed
void ollama_embeddings(const std::shared_ptr<Call>& call);     ///< POST /api/embeddings
/// POST /rerank, /v1/rerank: {query, documents, top_n} as Jina and llama.cpp have it, {query, texts} as TEI.
void rerank(const std::shared_ptr<Call>& call);

}  // namespace quipu::server
