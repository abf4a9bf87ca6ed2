// TokenChoice: the likeliest tokens of each row, in one pass over its scores.
//
//   scores: f32 [batch, columns]       wants_logp: bool [], optional
//   -> top_logp: f32 [batch, number], top_ids: int64 [batch, number], log_normaliser: f32 [batch]
//
// Attribute number: how many, 1 to 64. They come greatest first, of equals the lowest column first,
// as from TopK. log_normaliser is log(sum(e**score)), and top_logp the scores less that: LogSoftmax to
// 4e-6. NaN and -infinity rank last, by their columns. A row with NaN or infinity, or of -infinity
// alone, has NaN as log-probabilities, as with LogSoftmax. If wants_logp is false, the greatest score
// takes the place of log_normaliser, which spares the exponentials.
#include "choice.h"

#include <cmath>

namespace {

constexpr int64_t kMostTokens = 64;

}  // namespace

TokenChoice::TokenChoice(const Info& info) : number(info.integer("number", 0)) {
  require(number > 0 && number <= kMostTokens, "TokenChoice: number must be 1 to 64");
}

void TokenChoice::compute(const Context& context) const {
  const Tensor scores_in = context.input(0);
  const Shape shape = scores_in.shape();
  require(shape.size() == 2 && shape[1] >= number && shape[1] <= INT32_MAX,
          "TokenChoice: scores must be [batch, columns], with at least `number` columns");
  const int64_t rows = shape[0], columns = shape[1];
  const float* const scores = scores_in.data<float>();
  const Tensor wants_logp_in = context.input(1);
  require(!wants_logp_in || count(wants_logp_in.shape()) == 1, "TokenChoice: wants_logp must be one value");
  const bool wants_logp = !wants_logp_in || *wants_logp_in.data<bool>();
  float* const top_logp = context.output(0, {rows, number}).data<float>();
  int64_t* const top_ids = context.output(1, {rows, number}).data<int64_t>();
  float* const normaliser = context.output(2, {rows}).data<float>();
  if (rows == 0) return;
  context.parallel(size_t(rows), [&](size_t row) {
    float* const best = top_logp + row * number;
    float total = 1;
    kernels.choose(scores + row * columns, int(columns), int(number), best, top_ids + row * number,
                   wants_logp ? &total : nullptr);
    normaliser[row] = best[0] + std::log(total);
    for (int64_t i = 0; i < number; i++) best[i] -= normaliser[row];  // as `logp` of the graph
  });
}
