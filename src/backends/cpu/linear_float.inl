// Linear with F32, F16 and BF16 weights: the weight exactly as float, the sum over K by the lane tree
// (docs/numerics.md), several rows of weights and activations in registers.

namespace quipu::backends {
namespace {

/// Outputs of `rows` weight rows from n and `tokens` activation rows from t; `first`: the first that read
/// these weights.
template <class W, int rows, int tokens, bool first>
void float_block(const LinearArgs& a, std::size_t n, std::size_t t) {
  const std::uint8_t* w[rows];
  const float* x[tokens];
  for (int i = 0; i < rows; ++i) w[i] = a.weight + (n + static_cast<std::size_t>(i)) * a.row_bytes;
  for (int j = 0; j < tokens; ++j) x[j] = in_row(a, t + static_cast<std::size_t>(j));
  V16 acc[rows][tokens];
  for (auto& row : acc)
    for (V16& v : row) v = set1(0);
  // The rows after these, or what is read after all of them, into L2 (see Ahead in linear_quant.inl).
  const bool last = a.next != nullptr && n + rows >= a.n_end;
  const std::uint8_t* after = last ? a.next : a.weight + (n + rows) * a.row_bytes;
  std::size_t k = 0;
  for (; k + 16 <= a.k; k += 16) {
    V16 xv[tokens];
    for (int j = 0; j < tokens; ++j) xv[j] = load(x[j] + k);
    for (int i = 0; i < rows; ++i) {
      const V16 wv = W::at(w[i], k);
      if constexpr (first) prefetch_far(after + static_cast<std::size_t>(i) * a.row_bytes + k * W::kBytes);
      for (int j = 0; j < tokens; ++j) acc[i][j] = fma(wv, xv[j], acc[i][j]);
    }
  }
  if (k < a.k) {
    for (int i = 0; i < rows; ++i) {
      const V16 wv = W::part(w[i], k, a.k - k);
      for (int j = 0; j < tokens; ++j) acc[i][j] = fma(wv, load_n(x[j] + k, a.k - k), acc[i][j]);
    }
  }
  for (int j = 0; j < tokens; ++j) {
    float y[rows];
    for (int i = 0; i < rows; ++i) y[i] = reduce_add(acc[i][j]);
    float_outputs(a, n, t + static_cast<std::size_t>(j), y, rows);
  }
}

/// Rows of weights by rows of activations whose sums are in registers.
constexpr int kFloatRows = kGroup == 16 ? 4 : 2, kFloatTokens = kGroup == 16 ? 6 : 2;
/// Fewer rows of activations do not pay for a panel.
constexpr std::size_t kFloatPanelLeast = 12;
/// Activations that stay in L2 while the weights pass by.
constexpr std::size_t kFloatBlockBytes = std::size_t{384} << 10;

/// As many activation rows from t as fit one block; how many it took.
template <class W, int rows, bool first>
std::size_t float_tokens(const LinearArgs& a, std::size_t n, std::size_t t, std::size_t end) {
  const auto block = [&](auto tokens) -> std::size_t {
    float_block<W, rows, tokens.value, first>(a, n, t);
    return static_cast<std::size_t>(tokens.value);
  };
  const std::size_t left = end - t;
  if constexpr (kFloatTokens == 6) {
    // Seven and eight as 4 + 3 and 4 + 4, five as 3 + 2: blocks of one or two spend their time on the
    // weights.
    if (left >= 6 && left != 7 && left != 8) return block(std::integral_constant<int, 6>());
    if (left >= 4 && left != 5) return block(std::integral_constant<int, 4>());
    if (left >= 3) return block(std::integral_constant<int, 3>());
  }
  if (left >= 2) return block(std::integral_constant<int, 2>());
  return block(std::integral_constant<int, 1>());
}
template <class W, int rows>
void float_rows(const LinearArgs& a, std::size_t n, std::size_t t, std::size_t end) {
  t += float_tokens<W, rows, true>(a, n, t, end);
  while (t < end) t += float_tokens<W, rows, false>(a, n, t, end);
}

template <class W>
void linear_float(const LinearArgs& a) {
  if (a.rows == 1) {
    std::size_t n = a.n_begin;
    for (; n + 8 <= a.n_end; n += 8) float_block<W, 8, 1, true>(a, n, 0);
    for (; n < a.n_end; ++n) float_block<W, 1, 1, true>(a, n, 0);
    return;
  }
  if constexpr (kGroup < 16)
    if (a.rows >= kFloatPanelLeast) return linear_float_panels<W>(a);
  const std::size_t fit = kFloatBlockBytes / (a.k * sizeof(float)) / kFloatTokens * kFloatTokens;
  const std::size_t block = fit < kFloatTokens ? kFloatTokens : fit;
  for (std::size_t t = 0; t < a.rows; t += block) {
    const std::size_t end = t + block < a.rows ? t + block : a.rows;
    std::size_t n = a.n_begin;
    for (; n + kFloatRows <= a.n_end; n += kFloatRows) float_rows<W, kFloatRows>(a, n, t, end);
    for (; n < a.n_end; ++n) float_rows<W, 1>(a, n, t, end);
  }
}

}  // namespace
}  // namespace quipu::backends
