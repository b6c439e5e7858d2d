// Reading the tokenizer vectors of the shared data (tokenizers/README.md).
#pragma once

#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "formats/gguf/gguf.hpp"
#include "support.hpp"
#include "text/tokenizer.hpp"

namespace quipu::test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::filesystem::path vocabulary_path(const std::string& name) {
  return shared_data() / "tokenizers" / (name + ".gguf");
}

inline std::unique_ptr<text::Tokenizer> load_vocabulary(const std::string& name) {
  return text::Tokenizer::from_metadata(gguf::File::open(vocabulary_path(name)).metadata());
}

struct Vector {
  std::string text;
  std::vector<text::Token> ids;
};

inline std::vector<Vector> read_vectors(const std::string& name) {
  const std::string separator = "\n__ggml_vocab_test__\n";
  const std::string input = read_file(shared_data() / "tokenizers" / (name + ".inp"));
  std::vector<Vector> vectors;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = input.find(separator, begin);
    if (end == std::string::npos) break;
    vectors.push_back({input.substr(begin, end - begin), {}});
    begin = end + separator.size();
  }
  std::istringstream output(read_file(shared_data() / "tokenizers" / (name + ".out")));
  std::vector<std::vector<text::Token>> lines;
  for (std::string line; std::getline(output, line);) {
    std::istringstream words(line);
    lines.emplace_back(std::istream_iterator<text::Token>(words), std::istream_iterator<text::Token>());
  }
  if (lines.size() > vectors.size())
    vectors.push_back({input.substr(begin), {}});  // gemma-4 has no last marker
  for (std::size_t i = 0; i < vectors.size() && i < lines.size(); ++i) vectors[i].ids = lines[i];
  if (lines.size() != vectors.size()) vectors.clear();
  return vectors;
}

}  // namespace quipu::test
