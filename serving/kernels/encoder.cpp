// Operators over the packed tokens of sources, row after row without padding.
//
// EncoderAttention: qkv f32 [tokens, (heads + 2 kv_heads) * head_dim], lengths int32 [batch], the
//   packed place of each padded token int32 [batch, source], and the padded places of the packed ones
//   int64 [tokens], which only the body of the function needs -> output f32 [tokens, heads * head_dim].
//   Each token attends to all of its row. Optional input: bias f32 [1 or batch, 1 or heads, source,
//   source], which is added to the scores. Attributes: num_heads, kv_num_heads, scale, softcap.
// QuantizeMemory: keys and values side by side, f32 [tokens, 2 * kv_heads * head_dim], lengths int32
//   [batch] and the packed places int32 [batch, source] -> quantised keys and values, int8 [batch,
//   kv_heads, source, head_dim] and the scales, f32 [batch, 1, kv_heads * head_dim], of each
//   channel of a row. Padding repeats the last token of its row. Attribute: kv_num_heads.
#include "encoder.h"

#include <algorithm>

#include "memory.h"

namespace {

// The rows of packed tokens, checked.
struct PackedRows {
  PackedRows(const Shape& tokens_shape, Tensor lengths_in, Tensor places) {
    const Shape shape = places.shape();
    require(tokens_shape.size() == 2 && shape.size() == 2 && lengths_in.shape() == Shape{shape[0]},
            "packed tokens: wrong shapes");
    rows = shape[0], source = shape[1], width = tokens_shape[1];
    lengths = lengths_in.data<int32_t>();
    starts.resize(rows + 1);
    for (int64_t row = 0; row < rows; row++) {
      require(lengths[row] >= 0 && lengths[row] <= source, "packed tokens: a length exceeds the source");
      starts[row + 1] = starts[row] + lengths[row];
    }
    require(starts[rows] == tokens_shape[0], "packed tokens: lengths do not fit the tokens");
  }

  int64_t rows, source, width;
  const int32_t* lengths;
  std::vector<int64_t> starts;
};

// The length from which on keys and values are packed for products of matrices.
constexpr int64_t kLeastLong = 128;

constexpr float kMasked = -1e29f;  // added to a score, it leaves a weight of 0

// Leave out keys at both ends that the bias masks: most, if the query attends to a window.
void leave_out_masked(AttentionQuery& query) {
  while (query.first < query.end && query.bias[query.first] <= kMasked) query.first++;
  while (query.first < query.end && query.bias[query.end - 1] <= kMasked) query.end--;
}

}  // namespace

void EncoderAttention::compute(const Context& context) const {
  const Tensor qkv_in = context.input(0), bias_in = context.input(4);
  const PackedRows in(qkv_in.shape(), context.input(1), context.input(2));
  const int64_t heads = options.heads, kv_heads = options.kv_heads, group = heads / kv_heads;
  const int64_t head_dim = in.width / (heads + 2 * kv_heads), dim = heads * head_dim;
  require(head_dim > 0 && head_dim <= kMostHeadDim && in.width == (heads + 2 * kv_heads) * head_dim,
          "EncoderAttention: wrong shapes");
  const Shape biases = bias_in ? bias_in.shape() : Shape{1, heads, in.source, in.source};
  require(biases.size() == 4 && (biases[0] == 1 || biases[0] == in.rows) && (biases[1] == 1 || biases[1] == heads) &&
              biases[2] >= in.source && biases[3] >= in.source,
          "EncoderAttention: bias must be [1 or batch, 1 or heads, source, source]");
  const float *const qkv = qkv_in.data<float>(), *const bias = bias_in.data<float>();
  float* const output = context.output(0, {in.starts[in.rows], dim}).data<float>();
  // Tasks are the queries of a row that share a head of keys and values, head by head, or a part of them.
  struct Task {
    int64_t row, kv_head, first, end;
  };
  std::vector<Task> tasks;
  for (int64_t row = 0; row < in.rows; row++) {
    if (!bias && options.cap == 0 && in.lengths[row] >= kLeastLong) {
      attend_in_long_row(context, qkv + in.starts[row] * in.width, in.lengths[row], head_dim, output + in.starts[row] * dim);
      continue;
    }
    const int64_t queries = group * in.lengths[row];
    for (int64_t i = 0; i < kv_heads; i++) {
      for (int64_t first = 0; first < queries; first += kMostQueries) {
        tasks.push_back({row, i, first, std::min<int64_t>(first + kMostQueries, queries)});
      }
    }
  }
  if (tasks.empty()) return;

  context.parallel(tasks.size(), [&](size_t index) {
    const Task& task = tasks[index];
    const int64_t length = in.lengths[task.row], number = task.end - task.first;
    const float* const tokens = qkv + in.starts[task.row] * in.width;
    AttentionHead<float> attention{};
    attention.scratch = reinterpret_cast<float*>(
        scratch(sizeof(float) * (attention_scratch(number, head_dim) + 2 * length * head_dim)));
    float* const keys = attention.scratch + attention_scratch(number, head_dim);
    float* const values = keys + length * head_dim;
    for (int64_t token = 0; token < length; token++) {
      const float* const key = tokens + token * in.width + dim + task.kv_head * head_dim;
      std::memcpy(keys + token * head_dim, key, sizeof(float) * head_dim);
      std::memcpy(values + token * head_dim, key + kv_heads * head_dim, sizeof(float) * head_dim);
    }
    AttentionQuery queries[kMostQueries];
    for (int64_t i = 0; i < number; i++) {
      const int64_t head = task.kv_head * group + (task.first + i) / length, token = (task.first + i) % length;
      float* const out = output + (in.starts[task.row] + token) * dim + head * head_dim;
      queries[i] = {tokens + token * in.width + head * head_dim, out, 0, int(length), nullptr, nullptr, nullptr, nullptr};
      if (bias) {
        const int64_t map = (biases[0] == 1 ? 0 : task.row) * biases[1] + (biases[1] == 1 ? 0 : head);
        queries[i].bias = bias + (map * biases[2] + token) * biases[3];
        leave_out_masked(queries[i]);
      }
    }
    attention.keys = keys, attention.values = values;
    attention.queries = queries, attention.number = int(number);
    attention.scale = options.scale, attention.cap = options.cap;
    kernels.attention.attend(attention, int(head_dim));
  });
}

void EncoderAttention::attend_in_long_row(const Context& context, const float* qkv, int64_t length, int64_t head_dim,
                                          float* output) const {
  constexpr int64_t kQueriesOfTask = 96;
  const int64_t heads = options.heads, kv_heads = options.kv_heads, dim = heads * head_dim, width = dim + 2 * kv_heads * head_dim;
  const LongAttentionKernels& attention = kernels.long_attention;
  const int64_t bytes_of_head = (attention.packed_bytes(int(length), int(head_dim)) + 63) / 64 * 64;
  uint8_t* const packed = scratch(bytes_of_head * kv_heads);
  context.parallel(size_t(kv_heads), [&](size_t kv_head) {
    const float* const keys = qkv + dim + int64_t(kv_head) * head_dim;
    attention.pack(keys, keys + kv_heads * head_dim, width, int(length), int(head_dim), packed + bytes_of_head * kv_head);
  });
  const int64_t parts = (length + kQueriesOfTask - 1) / kQueriesOfTask;
  context.parallel(size_t(heads * parts), [&](size_t task) {
    const int64_t head = int64_t(task) / parts, first = int64_t(task) % parts * kQueriesOfTask;
    attention.attend({qkv + first * width + head * head_dim, output + first * dim + head * head_dim, width, dim,
                      int(std::min(kQueriesOfTask, length - first)), int(length), int(head_dim), options.scale,
                      packed + bytes_of_head * (head / (heads / kv_heads))});
  });
}

QuantizeMemory::QuantizeMemory(const Info& info) : kv_heads(info.integer("kv_num_heads", 0)) {
  require(kv_heads > 0, "QuantizeMemory: kv_num_heads must be positive");
}

void QuantizeMemory::compute(const Context& context) const {
  const Tensor keys_values = context.input(0);
  const PackedRows in(keys_values.shape(), context.input(1), context.input(2));
  const int64_t dim = in.width / 2, head_dim = dim / kv_heads;
  require(in.width == 2 * kv_heads * head_dim && head_dim > 0, "QuantizeMemory: wrong shapes");
  int8_t* quantised[2];
  float* scales[2];
  for (int part = 0; part < 2; part++) {
    quantised[part] = context.output(part, {in.rows, kv_heads, in.source, head_dim}).data<int8_t>();
    scales[part] = context.output(2 + part, {in.rows, 1, dim}).data<float>();
  }
  const size_t tasks = size_t(in.rows * 2 * kv_heads);
  if (tasks == 0) return;

  context.parallel(tasks, [&](size_t task) {
    const int64_t row = task / (2 * kv_heads), part = task / kv_heads % 2, head = task % kv_heads, length = in.lengths[row];
    int8_t* const head_quantised = quantised[part] + (row * kv_heads + head) * in.source * head_dim;
    const float* const from = keys_values.data<float>() + in.starts[row] * in.width + part * dim + head * head_dim;
    kernels.quantise_channels(from, in.width, int(length), int(head_dim), head_quantised, scales[part] + row * dim + head * head_dim);
    for (int64_t token = length; token < in.source; token++) {
      if (length > 0) std::memcpy(head_quantised + token * head_dim, head_quantised + (length - 1) * head_dim, head_dim);
      else std::memset(head_quantised + token * head_dim, 0, head_dim);
    }
  });
}
