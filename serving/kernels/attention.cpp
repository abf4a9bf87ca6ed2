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
// Fp16SelfAttention: the same with keys and values, past and next, in fp16. New ones are rounded before any token
//   attends to them.
// CrossAttention: query f32 [batch, tokens, heads * head_dim], keys and values f32 [batch, kv_heads,
//   source, head_dim], lengths int32 [batch], and int64 [2], which only the body of the function
//   needs -> output f32, as large as the query. A row of length 0 gets zeros.
// Int8CrossAttention: the same over int8 keys and values, with key_scale and value_scale f32 [batch, 1, heads *
//   head_dim] -> output, keys, values (unchanged).
// CrossAttentionWeights, Int8CrossAttentionWeights: query f32 [batch, 1, heads * head_dim], keys,
//   lengths -> weights f32 [batch, heads, source], 0 beyond a row's length. A key_scale must be in the query already.
//
// Attributes: num_heads, kv_num_heads, scale, softcap; of self-attention local_window_size, as
// GroupQueryAttention's. The sums of a token have an order that depends on its own position only, so that it
// has the same bits in any batch, alone or beside other tokens, and on any number of threads.
#include "attention.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <type_traits>

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

// The most threads that a session has; it does not tell how many there are.
int64_t most_threads() {
  static const int64_t processors = sysconf(_SC_NPROCESSORS_ONLN);
  return std::max<int64_t>(1, processors);
}

int64_t divide_up(int64_t number, int64_t by) { return (number + by - 1) / by; }

float* float_scratch(int64_t floats) { return reinterpret_cast<float*>(scratch(sizeof(float) * floats)); }

void check_head_dim(int64_t head_dim) {
  require(head_dim > 0 && head_dim <= kMostHeadDim, "attention: heads have at most 256 numbers");
}

void check_lengths(const int32_t* lengths, int64_t rows, int64_t source) {
  for (int64_t row = 0; row < rows; row++) {
    require(lengths[row] >= 0 && lengths[row] <= source, "cross-attention: a length exceeds the source");
  }
}

template <class Element>
const AttentionKernels<Element>& attention_kernels(const Kernels& kernels) {
  if constexpr (std::is_same_v<Element, Half>) return kernels.fp16_attention;
  else if constexpr (std::is_same_v<Element, int8_t>) return kernels.int8_attention;
  else return kernels.attention;
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

// Some queries of a row that share a head of keys and values: a range of all its tokens' queries, token by token.
struct QueryRange {
  int64_t row, kv_head, first, end;
};

// One run of self-attention.
template <class Element>
class SelfRun {
 public:
  SelfRun(const Context& context, const Kernels& kernels, const AttentionOptions& options)
      : context(context), kernels(kernels), options(options), in(context, options) {
    const Tensor keys_in = context.input(1), values_in = context.input(2);
    keys = in_place<Element>(context, 1, keys_in, keys_in.shape());
    values = in_place<Element>(context, 2, values_in, keys_in.shape());
    group = options.heads / options.kv_heads;
    query_dim = options.heads * in.head_dim;
    out = context.output(0, {in.rows, in.tokens, query_dim}).data<float>();
  }

  void compute() const {
    constexpr int64_t kLeastQueries = 32;  // that share a read of keys and values, where there are as many
    constexpr int64_t kTasksOfThread = 4;  // of unlike length
    const int64_t heads = in.rows * options.kv_heads, queries = in.tokens * group;
    if (heads * queries == 0) return;
    const int64_t parts = std::max(divide_up(queries, kMostQueries),
                                   std::min(divide_up(kTasksOfThread * most_threads(), heads),
                                            divide_up(queries, kLeastQueries)));
    if (parts > 1) return attend_in_parts(divide_up(queries, parts));
    if (heads < 2 * most_threads() && in.longest > kBlocksOfTask * kKeyBlock) return attend_by_blocks();
    context.parallel(size_t(heads), [&](size_t task) {
      const int64_t row = task / options.kv_heads, kv_head = task % options.kv_heads;
      append(row, kv_head, 0, in.tokens);
      attend({row, kv_head, 0, queries}, task + 1 < size_t(heads));
    });
  }

 private:
  static constexpr int64_t kBlocksOfTask = 2;

  // Append all keys and values, then divide the queries of each head. The last tokens, which take longest, come
  // first.
  void attend_in_parts(int64_t queries_of_part) const {
    constexpr int64_t kTokensOfTask = 64;
    const int64_t heads = in.rows * options.kv_heads, queries = in.tokens * group;
    const int64_t appends = divide_up(in.tokens, kTokensOfTask), parts = divide_up(queries, queries_of_part);
    context.parallel(size_t(heads * appends), [&](size_t task) {
      const int64_t head = task / appends, first = task % appends * kTokensOfTask;
      append(head / options.kv_heads, head % options.kv_heads, first, std::min(first + kTokensOfTask, in.tokens));
    });
    context.parallel(size_t(heads * parts), [&](size_t task) {
      const int64_t head = task % heads, first = (parts - 1 - task / heads) * queries_of_part;
      attend({head / options.kv_heads, head % options.kv_heads, first, std::min(first + queries_of_part, queries)}, false);
    });
  }

  // Divide the blocks of keys of each head. Whoever computes a head's last one merges them.
  void attend_by_blocks() const {
    const int64_t heads = in.rows * options.kv_heads, queries = in.tokens * group;
    struct Head {
      int64_t first_block, end_block, first_task, floats;
      std::atomic<int64_t> missing_blocks;
    };
    const std::unique_ptr<Head[]> all_heads(new Head[heads]);
    int64_t tasks = 0, floats = 0;
    for (int64_t i = 0; i < heads; i++) {
      Head& head = all_heads[i];
      const int64_t total = in.totals[i / options.kv_heads];
      head.first_block = first_key(total - in.tokens) / kKeyBlock, head.end_block = divide_up(total, kKeyBlock);
      head.missing_blocks = head.end_block - head.first_block;
      head.first_task = tasks, head.floats = floats;
      tasks += divide_up(head.missing_blocks, kBlocksOfTask);
      floats += head.missing_blocks * attention_states(queries, in.head_dim);
    }
    const std::unique_ptr<float[]> states(new float[floats]);
    context.parallel(size_t(tasks), [&](size_t task) {
      int64_t i = heads - 1;
      while (all_heads[i].first_task > int64_t(task)) i--;
      Head& head = all_heads[i];
      const int64_t row = i / options.kv_heads, kv_head = i % options.kv_heads, past = in.totals[row] - in.tokens;
      const int64_t first = head.first_block + (task - head.first_task) * kBlocksOfTask;
      const int64_t end = std::min(first + kBlocksOfTask, head.end_block);
      append(row, kv_head, std::clamp<int64_t>(first * kKeyBlock - past, 0, in.tokens),
             std::clamp<int64_t>(end * kKeyBlock - past, 0, in.tokens));
      AttentionQuery all_queries[kMostQueries];
      const AttentionHead<Element> attention = head_of({row, kv_head, 0, queries}, all_queries);
      attention_kernels<Element>(kernels).attend_to_blocks(attention, int(in.head_dim), int(first), int(end), states.get() + head.floats);
      if (head.missing_blocks.fetch_sub(end - first) == end - first) {
        attention_kernels<Element>(kernels).merge_blocks(attention, int(in.head_dim), states.get() + head.floats);
      }
    });
  }

  // Return the first key that a token attends to.
  int64_t first_key(int64_t position) const { return std::max<int64_t>(0, position + 1 - options.window); }

  // Append the keys and values of a range of tokens.
  void append(int64_t row, int64_t kv_head, int64_t first, int64_t end) const {
    const int64_t head_dim = in.head_dim, past = in.totals[row] - in.tokens;
    const int64_t start = ((row * options.kv_heads + kv_head) * in.capacity + past) * head_dim;
    for (int64_t token = first; token < end; token++) {
      const float* const key = in.qkv + (row * in.tokens + token) * in.width + query_dim + kv_head * head_dim;
      float rotated[kMostHeadDim];
      if (in.cos != nullptr) rotate(key, past + token, rotated);
      put(in.cos == nullptr ? key : rotated, keys + start + token * head_dim);
      put(key + options.kv_heads * head_dim, values + start + token * head_dim);
    }
  }

  void put(const float* vector, Element* to) const {
    if constexpr (std::is_same_v<Element, float>) std::memcpy(to, vector, sizeof(float) * in.head_dim);
    else kernels.round_to_halves(vector, in.head_dim, to);
  }

  void rotate(const float* vector, int64_t position, float* rotated) const {
    const int64_t offset = position * in.rotary_dim / 2;
    kernels.rotate(vector, in.cos + offset, in.sin + offset, int(in.rotary_dim), int(in.head_dim), rotated);
  }

  // Attend with queries whose keys are appended. has_next: whether the same thread is likely to take the next head.
  void attend(const QueryRange& range, bool has_next) const {
    AttentionQuery queries[kMostQueries];
    AttentionHead<Element> attention = head_of(range, queries);
    if (has_next) {
      const int64_t first = in.capacity * in.head_dim + queries[0].first / kKeyBlock * kKeyBlock * in.head_dim;
      attention.next_keys = attention.keys + first, attention.next_values = attention.values + first;
    }
    attention_kernels<Element>(kernels).attend(attention, int(in.head_dim));
  }

  // Return the head with its queries rotated, in the thread's scratch memory.
  AttentionHead<Element> head_of(const QueryRange& range, AttentionQuery* queries) const {
    const int64_t head_dim = in.head_dim, number = range.end - range.first;
    float* const rotated = float_scratch(number * head_dim + kMostLanes + attention_scratch(number, head_dim));
    int64_t token = range.first / group, head_of_group = range.first % group;
    for (int64_t i = 0; i < number; i++) {
      const int64_t head = range.kv_head * group + head_of_group;
      const int64_t position = in.totals[range.row] - in.tokens + token;
      const int64_t offset = range.row * in.tokens + token;
      const float* const vector = in.qkv + offset * in.width + head * head_dim;
      queries[i] = {vector, out + offset * query_dim + head * head_dim, int(first_key(position)), int(position + 1),
                    in.bias_of(range.row, head, options.heads, token), in.sinks ? in.sinks + head : nullptr,
                    nullptr, nullptr};
      if (in.cos != nullptr) {
        rotate(vector, position, rotated + i * head_dim);
        queries[i].vector = rotated + i * head_dim;
      }
      if (++head_of_group == group) token++, head_of_group = 0;
    }
    const int64_t offset = (range.row * options.kv_heads + range.kv_head) * in.capacity * head_dim;
    AttentionHead<Element> attention{};
    attention.keys = keys + offset, attention.values = values + offset;
    attention.queries = queries, attention.number = int(number);
    attention.scale = options.scale, attention.cap = options.cap;
    attention.scratch = rotated + divide_up(number * head_dim, kMostLanes) * kMostLanes;
    return attention;
  }

  const Context& context;
  const Kernels& kernels;
  const AttentionOptions& options;
  const SelfInputs in;
  int64_t group, query_dim;
  Element *keys, *values;
  float* out;
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

template <class Element>
void SelfAttentionOver<Element>::compute(const Context& context) const {
  SelfRun<Element>(context, kernels, options).compute();
}

template class SelfAttentionOver<float>;
template class SelfAttentionOver<Half>;

template <class Element>
void SourceAttention<Element>::attend(const Context& context, Tensor key_scale, Tensor value_scale) const {
  const Tensor query = context.input(0), keys = context.input(1), values = context.input(2);
  const Tensor lengths_in = context.input(3);
  const Shape shape = query.shape(), memory = keys.shape();
  require(shape.size() == 3 && memory.size() == 4 && values.shape() == memory, "cross-attention: wrong shapes");
  const int64_t rows = shape[0], tokens = shape[1], dim = shape[2], source = memory[2], head_dim = memory[3];
  check_head_dim(head_dim);
  const Shape scales = {rows, 1, dim};
  require(memory[0] == rows && memory[1] == options.kv_heads && dim == options.heads * head_dim &&
              lengths_in.shape() == Shape{rows} && (!key_scale || key_scale.shape() == scales) &&
              (!value_scale || value_scale.shape() == scales),
          "cross-attention: wrong shapes");
  const int32_t* lengths = lengths_in.data<int32_t>();
  check_lengths(lengths, rows, source);
  float* const out = context.output(0, shape).data<float>();
  const int64_t group = options.heads / options.kv_heads, number = tokens * group;
  const size_t tasks = size_t(rows * options.kv_heads);
  if (tasks == 0 || tokens == 0) return;
  const float* const query_vectors = query.data<float>();
  const float *const key_scales = key_scale.data<float>(), *const value_scales = value_scale.data<float>();

  context.parallel(tasks, [&](size_t task) {
    AttentionQuery queries[kMostQueries];
    AttentionHead<Element> attention{};
    attention.keys = keys.data<Element>() + task * source * head_dim;
    attention.values = values.data<Element>() + task * source * head_dim;
    attention.queries = queries, attention.scale = options.scale, attention.cap = options.cap;
    attention.scratch = float_scratch(attention_scratch(std::min<int64_t>(number, kMostQueries), head_dim));
    const int64_t row = int64_t(task) / options.kv_heads, first_head = int64_t(task) % options.kv_heads * group;
    for (int64_t first = 0; first < number; first += kMostQueries) {
      attention.number = int(std::min<int64_t>(kMostQueries, number - first));
      for (int q = 0; q < attention.number; q++) {
        const int64_t token = (first + q) / group, column = (first_head + (first + q) % group) * head_dim;
        const int64_t offset = (row * tokens + token) * dim + column, scale = row * dim + column;
        queries[q] = {query_vectors + offset, out + offset, 0, lengths[row], nullptr, nullptr,
                      key_scales ? key_scales + scale : nullptr, value_scales ? value_scales + scale : nullptr};
      }
      if (first + kMostQueries >= number && task + 1 < tasks) {
        attention.next_keys = attention.keys + source * head_dim;
        attention.next_values = attention.values + source * head_dim;
      }
      attention_kernels<Element>(kernels).attend(attention, int(head_dim));
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
  const size_t tasks = size_t(rows * options.heads);
  if (tasks == 0) return;

  context.parallel(tasks, [&](size_t task) {
    const int64_t row = task / options.heads, head = task % options.heads;
    const AttentionQuery weights{query.data<float>() + task * head_dim, out + task * source, 0, lengths[row],
                                 nullptr, nullptr, nullptr, nullptr};
    AttentionHead<Element> attention{};
    attention.keys = keys.data<Element>() + (row * options.kv_heads + head / group) * source * head_dim;
    attention.queries = &weights, attention.number = 1;
    attention.scale = options.scale, attention.cap = options.cap;
    attention.scratch = float_scratch(attention_scratch(1, head_dim) + lengths[row] + kMostLanes);
    attention_kernels<Element>(kernels).write_weights(attention, int(head_dim),
                                                      attention.scratch + attention_scratch(1, head_dim));
    std::fill(weights.out + weights.end, weights.out + source, 0.0f);
  });
}

template class SourceWeights<float>;
template class SourceWeights<int8_t>;
