// Attention of decoders, of any number of rows with ragged lengths.
//
// SelfAttention: qkv f32 [batch, tokens, (heads + 2 kv_heads) * head_dim], keys and values f32
//   [batch, kv_heads, capacity, head_dim], total_lengths int32 [batch] with the new tokens, and the
//   capacity, which only the body of the function needs -> output f32 [batch, tokens, heads *
//   head_dim], next keys and values: the same buffers with the new tokens appended, if they are
//   bound so, else copies. A token attends to those before it and to itself.
//   Optional inputs: cos and sin f32 [positions, rotary_dim / 2] (RoPE, by halves), bias f32 [1 or
//   batch, heads, tokens, at least the greatest length], which is added to the scores, and sinks f32
//   [heads], each a score of the softmax that has no value.
// CrossAttention: query f32 [batch, 1, heads * head_dim], keys and values f32 [batch, kv_heads,
//   source, head_dim], lengths int32 [batch], and int64 [2], which only the body of the function
//   needs -> output f32, as large as the query. A row of length 0 gets zeros.
// Int8CrossAttention: the same over int8 keys and values, with key_scale and value_scale f32 [batch, 1, heads *
//   head_dim] -> output, keys, values (unchanged).
// CrossAttentionWeights, Int8CrossAttentionWeights: query f32 [batch, 1, heads * head_dim], keys,
//   lengths -> weights f32 [batch, heads, source], 0 beyond a row's length. A key_scale must be in the query already.
//
// Attributes: num_heads, kv_num_heads, scale, softcap; of self-attention local_window_size, as
// GroupQueryAttention's. A row's sums have an order that depends on its own length only, so that it
// has the same bits in any batch, and a token the same bits whether it is read alone or with others.
#include "attention.h"

#include <algorithm>

#include "memory.h"

namespace {

// Copy an input that is not bound to the same buffer as its output.
template <class Element>
Element* in_place(const Context& context, size_t output, const Tensor& input, const Shape& shape) {
  Element* const out = context.output(output, shape).data<Element>();
  const Element* const in = input.data<Element>();
  if (out != in) std::memcpy(out, in, sizeof(Element) * count(shape));
  return out;
}

float* score_buffer(int64_t floats) { return reinterpret_cast<float*>(scratch(sizeof(float) * floats)); }

constexpr int64_t kMostLanes = 16;  // kernels write whole vectors of scores

void check_head_dim(int64_t head_dim) {
  require(head_dim > 0 && head_dim <= kMostHeadDim, "attention: heads have at most 256 numbers");
}

void check_lengths(const int32_t* lengths, int64_t rows, int64_t source) {
  for (int64_t row = 0; row < rows; row++) {
    require(lengths[row] >= 0 && lengths[row] <= source, "cross-attention: a length exceeds the source");
  }
}

size_t num_tasks(int64_t rows, int64_t kv_heads) { return size_t(rows * kv_heads); }

void append(const float* from, int64_t number, float* to) { std::memcpy(to, from, sizeof(float) * number); }

void attend(const Kernels& kernels, const AttentionHead<float>& head, int64_t head_dim) {
  kernels.attend(head, int(head_dim));
}

void attend(const Kernels& kernels, const AttentionHead<int8_t>& head, int64_t head_dim) {
  kernels.attend_int8(head, int(head_dim));
}

// The inputs of one run of self-attention, checked.
struct SelfInputs {
  SelfInputs(const Context& context, const AttentionOptions& options) {
    const Tensor qkv_in = context.input(0), keys_in = context.input(1), totals_in = context.input(3);
    const Shape shape = qkv_in.shape(), memory = keys_in.shape();
    require(shape.size() == 3 && memory.size() == 4 && context.input(2).shape() == memory,
            "SelfAttention: wrong shapes");
    rows = shape[0], tokens = shape[1], width = shape[2], capacity = memory[2], head_dim = memory[3];
    check_head_dim(head_dim);
    require(memory[0] == rows && memory[1] == options.kv_heads &&
                width == (options.heads + 2 * options.kv_heads) * head_dim && totals_in.shape() == Shape{rows},
            "SelfAttention: wrong shapes");
    qkv = qkv_in.data<float>();
    totals = totals_in.data<int32_t>();
    for (int64_t row = 0; row < rows; row++) {
      require(totals[row] >= tokens && totals[row] <= capacity, "SelfAttention: a length exceeds the capacity");
      longest = std::max<int64_t>(longest, totals[row]);
    }
    read_rotary(context.input(5), context.input(6));
    read_bias(context.input(7), options.heads);
    if (const Tensor sinks_in = context.input(8)) {
      require(sinks_in.shape() == Shape{options.heads}, "SelfAttention: sinks must be [heads]");
      sinks = sinks_in.data<float>();
    }
  }

  void read_rotary(Tensor cos_in, Tensor sin_in) {
    require(bool(cos_in) == bool(sin_in), "SelfAttention: cos and sin belong together");
    if (!cos_in) return;
    const Shape shape = cos_in.shape();
    require(shape.size() == 2 && sin_in.shape() == shape && shape[0] >= longest && 2 * shape[1] <= head_dim,
            "SelfAttention: cos and sin must be [positions, rotary_dim / 2]");
    cos = cos_in.data<float>(), sin = sin_in.data<float>(), rotary_dim = 2 * shape[1];
  }

  void read_bias(Tensor bias_in, int64_t heads) {
    if (!bias_in) return;
    const Shape shape = bias_in.shape();
    require(shape.size() == 4 && (shape[0] == 1 || shape[0] == rows) && shape[1] == heads && shape[2] == tokens &&
                shape[3] >= longest,
            "SelfAttention: bias must be [1 or batch, heads, tokens, at least the greatest length]");
    bias = bias_in.data<float>(), bias_width = shape[3];
    bias_rows = shape[0];
  }

  const float* bias_of(int64_t row, int64_t head, int64_t heads, int64_t token) const {
    if (bias == nullptr) return nullptr;
    return bias + (((bias_rows == 1 ? 0 : row) * heads + head) * tokens + token) * bias_width;
  }

  int64_t rows, tokens, width, capacity, head_dim, longest = 0, rotary_dim = 0, bias_width = 0, bias_rows = 0;
  const float *qkv, *cos = nullptr, *sin = nullptr, *bias = nullptr, *sinks = nullptr;
  const int32_t* totals;
};

}  // namespace

AttentionOptions::AttentionOptions(const Info& info)
    : heads(info.integer("num_heads", 0)),
      kv_heads(info.integer("kv_num_heads", 0)),
      scale(info.number("scale", 0)),
      window(info.integer("local_window_size", -1)),
      cap(info.number("softcap", 0)) {
  require(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, "attention: num_heads and kv_num_heads do not fit");
  if (window <= 0) window = INT32_MAX;
}

void SelfAttention::compute(const Context& context) const {
  const SelfInputs in(context, options);
  const int64_t head_dim = in.head_dim, group = options.heads / options.kv_heads, query_dim = options.heads * head_dim;
  const Tensor keys_in = context.input(1), values_in = context.input(2);
  float* const keys = in_place<float>(context, 1, keys_in, keys_in.shape());
  float* const values = in_place<float>(context, 2, values_in, keys_in.shape());
  float* const out = context.output(0, {in.rows, in.tokens, query_dim}).data<float>();
  const size_t tasks = num_tasks(in.rows, options.kv_heads);
  if (tasks == 0) return;

  context.parallel(tasks, [&](size_t task) {
    const int64_t row = task / options.kv_heads, kv_head = task % options.kv_heads;
    const int64_t past = in.totals[row] - in.tokens;
    float* const head_keys = keys + task * in.capacity * head_dim;
    float* const head_values = values + task * in.capacity * head_dim;
    const int64_t stride = (in.totals[row] + kMostLanes - 1) / kMostLanes * kMostLanes;
    float* const scores = score_buffer(kMostQueries * (stride + head_dim) + head_dim);
    float* const rotated = scores + kMostQueries * stride;
    const auto rotate = [&](const float* vectors, int64_t number, int64_t position) -> const float* {
      if (in.cos == nullptr) return vectors;
      const int64_t offset = position * in.rotary_dim / 2;
      for (int64_t i = 0; i < number * head_dim; i += head_dim) {
        kernels.rotate(vectors + i, in.cos + offset, in.sin + offset, int(in.rotary_dim), int(head_dim), rotated + i);
      }
      return rotated;
    };
    for (int64_t token = 0; token < in.tokens; token++) {
      const float* const token_qkv = in.qkv + (row * in.tokens + token) * in.width;
      const float* const key = token_qkv + query_dim + kv_head * head_dim;
      const int64_t position = past + token, first = std::max<int64_t>(0, position + 1 - options.window);
      append(rotate(key, 1, position), head_dim, head_keys + position * head_dim);
      append(key + options.kv_heads * head_dim, head_dim, head_values + position * head_dim);
      const int64_t end = (kv_head + 1) * group;
      for (int64_t head = kv_head * group; head < end; head += kMostQueries) {
        const float* const bias = in.bias_of(row, head, options.heads, token);
        AttentionHead<float> attention{};
        attention.queries = int(std::min<int64_t>(kMostQueries, end - head));
        attention.query = rotate(token_qkv + head * head_dim, attention.queries, position);
        attention.keys = head_keys + first * head_dim;
        attention.values = head_values + first * head_dim;
        if (head + kMostQueries >= end && task + 1 < tasks) {
          attention.next_keys = attention.keys + in.capacity * head_dim;
          attention.next_values = attention.values + in.capacity * head_dim;
        }
        attention.bias = bias ? bias + first : nullptr;
        attention.bias_stride = in.tokens * in.bias_width;
        attention.sinks = in.sinks ? in.sinks + head : nullptr;
        attention.length = int(position + 1 - first);
        attention.scale = options.scale;
        attention.cap = options.cap;
        attention.scores = scores;
        attention.scores_stride = stride;
        attention.out = out + (row * in.tokens + token) * query_dim + head * head_dim;
        kernels.attend(attention, int(head_dim));
      }
    }
  });
}

template <class Element>
void SourceAttention<Element>::attend(const Context& context, Tensor key_scale, Tensor value_scale) const {
  const Tensor query = context.input(0), keys = context.input(1), values = context.input(2);
  const Tensor lengths_in = context.input(3);
  const Shape shape = query.shape(), memory = keys.shape();
  require(shape.size() == 3 && shape[1] == 1 && memory.size() == 4 && values.shape() == memory,
          "cross-attention: wrong shapes");
  const int64_t rows = shape[0], source = memory[2], head_dim = memory[3];
  check_head_dim(head_dim);
  require(memory[0] == rows && memory[1] == options.kv_heads && shape[2] == options.heads * head_dim &&
              lengths_in.shape() == Shape{rows} && (!key_scale || key_scale.shape() == shape) &&
              (!value_scale || value_scale.shape() == shape),
          "cross-attention: wrong shapes");
  const int32_t* lengths = lengths_in.data<int32_t>();
  check_lengths(lengths, rows, source);
  float* const out = context.output(0, shape).data<float>();
  const int64_t group = options.heads / options.kv_heads;
  const size_t tasks = num_tasks(rows, options.kv_heads);
  if (tasks == 0) return;

  context.parallel(tasks, [&](size_t task) {
    const int64_t row = task / options.kv_heads, kv_head = task % options.kv_heads;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
      const int64_t offset = (row * options.heads + head) * head_dim;
      AttentionHead<Element> attention{};
      attention.query = query.data<float>() + offset;
      attention.keys = keys.data<Element>() + task * source * head_dim;
      attention.values = values.data<Element>() + task * source * head_dim;
      if (head + 1 == (kv_head + 1) * group && task + 1 < tasks) {
        attention.next_keys = attention.keys + source * head_dim;
        attention.next_values = attention.values + source * head_dim;
      }
      attention.key_scale = key_scale ? key_scale.data<float>() + offset : nullptr;
      attention.value_scale = value_scale ? value_scale.data<float>() + offset : nullptr;
      attention.length = lengths[row];
      attention.scale = options.scale;
      attention.cap = options.cap;
      attention.scores = score_buffer(lengths[row] + kMostLanes);
      attention.out = out + offset;
      ::attend(kernels, attention, head_dim);
    }
  });
}

void CrossAttention::compute(const Context& context) const {
  attend(context, Tensor(nullptr), Tensor(nullptr));
}

void Int8CrossAttention::compute(const Context& context) const {
  const Tensor keys = context.input(1), values = context.input(2);
  attend(context, context.input(5), context.input(6));
  in_place<int8_t>(context, 1, keys, keys.shape());
  in_place<int8_t>(context, 2, values, values.shape());
}

template <class Element>
void SourceWeights<Element>::compute(const Context& context) const {
  const Tensor query = context.input(0), keys = context.input(1), lengths_in = context.input(2);
  const Shape shape = query.shape(), memory = keys.shape();
  require(shape.size() == 3 && shape[1] == 1 && memory.size() == 4, "attention weights: wrong shapes");
  const int64_t rows = shape[0], source = memory[2], head_dim = memory[3];
  check_head_dim(head_dim);
  require(memory[0] == rows && memory[1] == options.kv_heads && shape[2] == options.heads * head_dim &&
              lengths_in.shape() == Shape{rows},
          "attention weights: wrong shapes");
  const int32_t* lengths = lengths_in.data<int32_t>();
  check_lengths(lengths, rows, source);
  float* const out = context.output(0, {rows, options.heads, source}).data<float>();
  const int64_t group = options.heads / options.kv_heads;
  const size_t tasks = num_tasks(rows, options.heads);
  if (tasks == 0) return;

  context.parallel(tasks, [&](size_t task) {
    const int64_t row = task / options.heads, head = task % options.heads;
    AttentionHead<Element> attention{};
    attention.query = query.data<float>() + task * head_dim;
    attention.keys = keys.data<Element>() + (row * options.kv_heads + head / group) * source * head_dim;
    attention.length = lengths[row];
    attention.scale = options.scale;
    attention.cap = options.cap;
    attention.scores = score_buffer(lengths[row] + kMostLanes);
    attention.out = out + task * source;
    ::attend(kernels, attention, head_dim);
    std::fill(attention.out + attention.length, attention.out + source, 0.0f);
  });
}

template class SourceWeights<float>;
template class SourceWeights<int8_t>;
