// Encoders that give embeddings, and the rerankers built on them.
#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"
#include "core/error.hpp"

namespace quipu::convert {
namespace {

const TensorRule kBertEmbeddings[] = {
    {"embeddings.word_embeddings", "token_embd", {Dim::vocab, Dim::width}},
    {"embeddings.token_type_embeddings", "token_types", {Dim::types, Dim::width}},
    {"embeddings.position_embeddings", "position_embd", {Dim::positions, Dim::width}},
    {"embeddings.LayerNorm", "token_embd_norm", {Dim::width}},
};
/// RoBERTa's positions begin behind the padding's.
const TensorRule kRobertaEmbeddings[] = {
    {"embeddings.word_embeddings", "token_embd", {Dim::vocab, Dim::width}},
    {"embeddings.token_type_embeddings", "token_types", {Dim::types, Dim::width}},
    {"embeddings.position_embeddings",
     "position_embd",
     {Dim::positions, Dim::width},
     Presence::required,
     {.rows = rows::positions_behind_padding}},
    {"embeddings.LayerNorm", "token_embd_norm", {Dim::width}},
};
const TensorRule kBertLayers[] = {
    {"encoder.layer.{}.attention.self.query", "blk.{}.attn_q", {Dim::q, Dim::width}},
    {"encoder.layer.{}.attention.self.key", "blk.{}.attn_k", {Dim::kv, Dim::width}},
    {"encoder.layer.{}.attention.self.value", "blk.{}.attn_v", {Dim::kv, Dim::width}},
    {"encoder.layer.{}.attention.output.dense", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"encoder.layer.{}.attention.output.LayerNorm", "blk.{}.attn_output_norm", {Dim::width}},
    {"encoder.layer.{}.intermediate.dense", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"encoder.layer.{}.output.dense", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
    {"encoder.layer.{}.output.LayerNorm", "blk.{}.layer_output_norm", {Dim::width}},
};
const TensorRule kBertHead[] = {
    {"pooler.dense", "cls", {Dim::width, Dim::width}},
    {"/classifier", "cls.output", {Dim::any, Dim::width}},
};
const TensorRule kRobertaHead[] = {
    {"/classifier.dense", "cls", {Dim::width, Dim::width}},
    {"/classifier.out_proj", "cls.output", {Dim::any, Dim::width}},
};

/// Names of the original checkpoints, then those of transformers.
const TensorRule kNomicBert[] = {
    {"embeddings.word_embeddings", "token_embd", {Dim::vocab, Dim::width}},
    {"embeddings.token_type_embeddings", "token_types", {Dim::types, Dim::width}},
    {"emb_ln", "token_embd_norm", {Dim::width}},
    {"embeddings.LayerNorm", "token_embd_norm", {Dim::width}},
    {"encoder.layers.{}.attn.Wqkv", "blk.{}.attn_qkv", {Dim::qkv, Dim::width}, Presence::optional},
    {"encoder.layers.{}.attn.out_proj", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"encoder.layers.{}.norm1", "blk.{}.attn_output_norm", {Dim::width}},
    {"encoder.layers.{}.mlp.fc11", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"encoder.layers.{}.mlp.fc12", "blk.{}.ffn_gate", {Dim::ff, Dim::width}},
    {"encoder.layers.{}.mlp.fc2", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
    {"encoder.layers.{}.norm2", "blk.{}.layer_output_norm", {Dim::width}},
    {"layers.{}.self_attn.q_proj", "blk.{}.attn_q", {Dim::q, Dim::width}, Presence::optional},
    {"layers.{}.self_attn.k_proj", "blk.{}.attn_k", {Dim::kv, Dim::width}, Presence::optional},
    {"layers.{}.self_attn.v_proj", "blk.{}.attn_v", {Dim::kv, Dim::width}, Presence::optional},
    {"layers.{}.self_attn.o_proj", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"layers.{}.post_attention_layernorm", "blk.{}.attn_output_norm", {Dim::width}},
    {"layers.{}.mlp.up_proj", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"layers.{}.mlp.gate_proj", "blk.{}.ffn_gate", {Dim::ff, Dim::width}},
    {"layers.{}.mlp.down_proj", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
    {"layers.{}.post_mlp_layernorm", "blk.{}.layer_output_norm", {Dim::width}},
};

const TensorRule kJinaBert[] = {
    {"embeddings.word_embeddings", "token_embd", {Dim::vocab, Dim::width}},
    {"embeddings.token_type_embeddings", "token_types", {Dim::types, Dim::width}},
    {"embeddings.LayerNorm", "token_embd_norm", {Dim::width}},
    {"encoder.layer.{}.attention.self.query", "blk.{}.attn_q", {Dim::q, Dim::width}},
    {"encoder.layer.{}.attention.self.key", "blk.{}.attn_k", {Dim::kv, Dim::width}},
    {"encoder.layer.{}.attention.self.value", "blk.{}.attn_v", {Dim::kv, Dim::width}},
    {"encoder.layer.{}.attention.self.layer_norm_q", "blk.{}.attn_q_norm", {Dim::q}, Presence::optional},
    {"encoder.layer.{}.attention.self.layer_norm_k", "blk.{}.attn_k_norm", {Dim::kv}, Presence::optional},
    {"encoder.layer.{}.attention.output.dense", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"encoder.layer.{}.attention.output.LayerNorm", "blk.{}.attn_output_norm", {Dim::width}},
    {"encoder.layer.{}.layer_norm_1", "blk.{}.attn_output_norm", {Dim::width}},
    {"encoder.layer.{}.layer_norm_2", "blk.{}.attn_norm_2", {Dim::width}, Presence::optional},
    {"encoder.layer.{}.mlp.gated_layers", "blk.{}.ffn_up", {Dim::ff2, Dim::width}},
    {"encoder.layer.{}.mlp.up_gated_layer", "blk.{}.ffn_up", {Dim::ff2, Dim::width}},
    {"encoder.layer.{}.mlp.wo", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
    {"encoder.layer.{}.mlp.down_layer", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
    {"encoder.layer.{}.mlp.layernorm", "blk.{}.layer_output_norm", {Dim::width}},
    {"encoder.layer.{}.layer_norm_output", "blk.{}.layer_output_norm", {Dim::width}},
};

const TensorRule kModernBert[] = {
    {"embeddings.tok_embeddings", "token_embd", {Dim::vocab, Dim::width}},
    {"embeddings.norm", "token_embd_norm", {Dim::width}},
    {"final_norm", "output_norm", {Dim::width}},
    {"layers.{}.attn_norm", "blk.{}.attn_norm", {Dim::width}, Presence::optional},
    {"layers.{}.attn.Wqkv", "blk.{}.attn_qkv", {Dim::qkv, Dim::width}},
    {"layers.{}.attn.Wo", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"layers.{}.mlp_norm", "blk.{}.ffn_norm", {Dim::width}},
    {"layers.{}.mlp.Wi", "blk.{}.ffn_up", {Dim::ff2, Dim::width}},
    {"layers.{}.mlp.Wo", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
};
const TensorRule kModernBertHead[] = {
    {"/head.dense", "cls", {Dim::width, Dim::width}},
    {"/head.norm", "cls.norm", {Dim::width}},
    {"/classifier", "cls.output", {Dim::any, Dim::width}},
};

constexpr std::uint32_t kMean = 1, kCls = 2, kRank = 4;  // of pooling_type

void expect_text(const Job& job, std::string_view key, std::string_view expected) {
  if (const auto found = job.config.try_text(key); found && *found != expected)
    fail(ErrorCode::unsupported, "{}: {} is \"{}\", expected {}", printable(job.config.name(), 1000), key,
         printable(*found), expected);
}

void add_encoder(Job& job) {
  job.set_flag("attention.causal", false);
  if (job.sizes[Dim::types] > 0)
    job.metadata.set("tokenizer.ggml.token_type_count",
                     gguf::Value::of_u32(static_cast<std::uint32_t>(job.sizes[Dim::types])));
}

void add_bert(Job& job) {
  add_encoder(job);
  expect_text(job, "position_embedding_type", "absolute");
  expect_text(job, "hidden_act", "gelu");
}

void add_roberta(Job& job) {
  add_bert(job);
  job.set_count("context_length",
                static_cast<std::uint64_t>(job.sizes[Dim::positions] - job.sizes[Dim::position_offset]));
}

void add_nomic_bert(Job& job) {
  add_encoder(job);
  expect_text(job, "activation_function", "swiglu");
  // The original configuration states what RoPE may be stretched to; trained were fewer.
  const auto positions = job.config.try_count("n_positions");
  if (positions && !job.config.has("max_position_embeddings"))
    job.set_count("context_length",
                  std::min(*positions, job.config.try_count("max_trained_positions").value_or(2048)));
}

void add_jina_bert(Job& job) {
  add_encoder(job);
  expect_text(job, "position_embedding_type", "alibi");
}

void add_modern_bert(Job& job) {
  add_encoder(job);
  if (const auto window = job.config.try_count("local_attention"))
    job.set_count("attention.sliding_window", *window);
  if (const auto every = job.config.try_count("global_attn_every_n_layers"))
    job.set_count("attention.sliding_window_pattern", *every);
  job.set("rope.scaling.type", gguf::Value::of_string("none"));
  if (const auto act = job.config.try_text("hidden_activation"))
    job.set("hidden_activation", gguf::Value::of_string(*act));
  if (const auto pooling = job.config.try_text("classifier_pooling"))
    job.set_count("classifier.pooling_type", *pooling == "mean" ? kMean : kCls);
  for (const char* role : {"bos", "eos", "sep"}) {
    const std::string key = fmt::format("tokenizer.ggml.add_{}_token", role);
    if (job.metadata.find(key) == nullptr) job.metadata.set(key, gguf::Value::of_bool(true));
  }
}

/// What the scores mean, in the order of their numbers.
void add_head(Job& job) {
  job.set_count("pooling_type", kRank);
  const boost::json::value* labels = job.config.find("id2label");
  if (labels == nullptr || !labels->is_object()) return;
  std::vector<std::string> names(labels->get_object().size());
  for (const auto& [number, name] : labels->get_object()) {
    const std::string digits(number);
    const std::size_t index =
        digits.empty() || digits.size() > 6 || digits.find_first_not_of("0123456789") != digits.npos
            ? names.size()
            : std::stoul(digits);
    if (index >= names.size() || !name.is_string())
      job.config.reject("id2label", "\"" + printable(digits) + "\" in it",
                        "a name for each number from 0 on");
    names[index] = std::string(name.get_string());
  }
  job.set("classifier.output_labels", gguf::Value::of_strings(names));
}

void add_bert_head(Job& job) {
  add_bert(job);
  add_head(job);
}
void add_roberta_head(Job& job) {
  add_roberta(job);
  add_head(job);
}
void add_modern_bert_head(Job& job) {
  add_modern_bert(job);
  add_head(job);
}

void bert_defaults(JsonFile& config) { config.set_default("type_vocab_size", 2); }

void roberta_defaults(JsonFile& config) {
  config.set_default("type_vocab_size", 1);
  config.set("position_offset", config.try_count("pad_token_id").value_or(1) + 1);
}

void nomic_bert_defaults(JsonFile& config) {
  bert_defaults(config);
  config.set_default("rotary_emb_base", 1000.0);
  if (config.has("prenorm") && config.flag_or("prenorm", false))
    config.reject("prenorm", "true", "false: norms behind the sums");
}

void modern_bert_defaults(JsonFile& config) {
  config.set_default("layer_norm_eps", config.try_number("norm_eps").value_or(1e-5));
  if (const auto base = config.try_number("global_rope_theta")) config.set_default("rope_theta", *base);
}

constexpr std::string_view kBertUnused =
    "*embeddings.position_ids|*pooler.dense.*|cls.predictions.*|cls.seq_relationship.*|lm_head.*";

}  // namespace

std::vector<Family> encoders() {
  std::vector<Family> list;
  list.push_back({.name = "bert",
                  .classes = "BertModel|BertForMaskedLM",
                  .tensors = join(kBertEmbeddings, kBertLayers),
                  .rope = Rope::none,
                  .defaults = bert_defaults,
                  .more = add_bert,
                  .roots = "bert.|",
                  .ignored = kBertUnused});
  list.push_back({.name = "bert",
                  .classes = "BertForSequenceClassification",
                  .tensors = join(kBertEmbeddings, kBertLayers, kBertHead),
                  .rope = Rope::none,
                  .defaults = bert_defaults,
                  .more = add_bert_head,
                  .roots = "bert.|",
                  .ignored = "*embeddings.position_ids"});
  list.push_back(
      {.name = "bert",
       .classes = "RobertaModel|RobertaForMaskedLM|XLMRobertaModel|XLMRobertaForMaskedLM|CamembertModel",
       .tensors = join(kRobertaEmbeddings, kBertLayers),
       .rope = Rope::none,
       .defaults = roberta_defaults,
       .more = add_roberta,
       .roots = "roberta.|",
       .ignored = kBertUnused});
  list.push_back({.name = "bert",
                  .classes = "RobertaForSequenceClassification|XLMRobertaForSequenceClassification",
                  .tensors = join(kRobertaEmbeddings, kBertLayers, kRobertaHead),
                  .rope = Rope::none,
                  .defaults = roberta_defaults,
                  .more = add_roberta_head,
                  .roots = "roberta.|",
                  .ignored = "*embeddings.position_ids"});
  list.push_back({.name = "nomic-bert",
                  .classes = "NomicBertModel",
                  .tensors = join(kNomicBert),
                  .defaults = nomic_bert_defaults,
                  .more = add_nomic_bert,
                  .roots = "nomic_bert.|bert.|",
                  .ignored = kBertUnused});
  list.push_back({.name = "jina-bert-v2",
                  .classes = "JinaBertModel|JinaBertForMaskedLM",
                  .tensors = join(kJinaBert),
                  .rope = Rope::none,
                  .defaults = bert_defaults,
                  .more = add_jina_bert,
                  .roots = "bert.|",
                  .ignored = kBertUnused});
  list.push_back({.name = "modern-bert",
                  .classes = "ModernBertModel|ModernBertForMaskedLM",
                  .tensors = join(kModernBert),
                  .defaults = modern_bert_defaults,
                  .more = add_modern_bert,
                  .roots = "model.|",
                  .ignored = "head.*|decoder.*"});
  list.push_back({.name = "modern-bert",
                  .classes = "ModernBertForSequenceClassification",
                  .tensors = join(kModernBert, kModernBertHead),
                  .defaults = modern_bert_defaults,
                  .more = add_modern_bert_head,
                  .roots = "model.|"});
  return list;
}

}  // namespace quipu::convert
