// Recurrent decoders: the gates of a cell in one node, and attention to the encoder's states.
//
// Tensors are f32; x is the projected input, u the product of the recurrent weight and the state, both
// with their bias, in the blocks of `models/layers/equations.py`:
// GruCell: x, u [batch, 3 * dim], hidden [batch, dim] -> next hidden [batch, dim]
// GruReset: x [batch, 3 * dim], u [batch, 2 * dim], hidden [batch, dim] -> reset * hidden, for the
//   GRU that resets before its product; then
// GruUpdate: x, u, u_new [batch, dim], hidden -> next hidden
// LstmCell: x, u [batch, 4 * dim], memory [batch, dim] -> next hidden, next memory
// SsruCell: gates [batch, 1, 2 * dim], memory [batch, 1, dim] -> relu(next memory), next memory
// AdditiveAttention: query [batch, key_dim], keys [batch, source, key_dim], values [batch, source,
//   value_dim], lengths int32 [batch], score_weight [key_dim] -> weights [batch, source], zeros beyond
//   a row's length, and context [batch, value_dim]. Scores are scale * score_weight . tanh(query + key).
// DotAttention: the same without score_weight. Scores are scale * query . key.
//
// Attribute scale, 1 if it is not given. A row's sums do not depend on the batch or on its padding.
#include "recurrent.h"

#include <algorithm>

#include "memory.h"

namespace {

// The batch and the size of a state, whose shape other inputs must fit.
struct CellSize {
  explicit CellSize(const Tensor& state) : shape(state.shape()) {
    require(shape.size() >= 2 && shape.back() <= INT32_MAX / 4, "a cell's state must be [batch, dim]");
    dim = shape.back();
    rows = count(shape, 0, shape.size() - 1);
  }

  const float* blocks(const Tensor& tensor, int64_t number) const {
    Shape expected = shape;
    expected.back() = number * dim;
    require(tensor.shape() == expected, "the inputs of a cell do not fit its state");
    return tensor.data<float>();
  }

  template <class Work>
  void each_row(const Context& context, const Work& work) const {
    constexpr int64_t kRowsOfTask = 8;  // a row takes a microsecond, as long as to start a task
    const int64_t tasks = (rows + kRowsOfTask - 1) / kRowsOfTask;
    if (tasks == 0 || dim == 0) return;
    context.parallel(size_t(tasks), [&](size_t task) {
      const int64_t first = int64_t(task) * kRowsOfTask, last = std::min(rows, first + kRowsOfTask);
      for (int64_t row = first; row < last; row++) work(row);
    });
  }

  Shape shape;
  int64_t rows, dim;
};

}  // namespace

void GruCell::compute(const Context& context) const {
  const CellSize size(context.input(2));
  const float *x = size.blocks(context.input(0), 3), *u = size.blocks(context.input(1), 3);
  const float* hidden = context.input(2).data<float>();
  float* next = context.output(0, size.shape).data<float>();
  const int64_t dim = size.dim;
  size.each_row(context, [&](int64_t row) {
    kernels.gru_cell(x + row * 3 * dim, u + row * 3 * dim, hidden + row * dim, int(dim), next + row * dim);
  });
}

void GruReset::compute(const Context& context) const {
  const CellSize size(context.input(2));
  const float *x = size.blocks(context.input(0), 3), *u = size.blocks(context.input(1), 2);
  const float* hidden = context.input(2).data<float>();
  float* reset = context.output(0, size.shape).data<float>();
  const int64_t dim = size.dim;
  size.each_row(context, [&](int64_t row) {
    kernels.gru_reset(x + row * 3 * dim, u + row * 2 * dim, hidden + row * dim, int(dim), reset + row * dim);
  });
}

void GruUpdate::compute(const Context& context) const {
  const CellSize size(context.input(3));
  const float *x = size.blocks(context.input(0), 3), *u = size.blocks(context.input(1), 2);
  const float* u_new = size.blocks(context.input(2), 1);
  const float* hidden = context.input(3).data<float>();
  float* next = context.output(0, size.shape).data<float>();
  const int64_t dim = size.dim;
  size.each_row(context, [&](int64_t row) {
    kernels.gru_update(x + row * 3 * dim, u + row * 2 * dim, u_new + row * dim, hidden + row * dim, int(dim),
                       next + row * dim);
  });
}

void LstmCell::compute(const Context& context) const {
  const CellSize size(context.input(2));
  const float *x = size.blocks(context.input(0), 4), *u = size.blocks(context.input(1), 4);
  const float* memory = context.input(2).data<float>();
  float* next = context.output(0, size.shape).data<float>();
  float* next_memory = context.output(1, size.shape).data<float>();
  const int64_t dim = size.dim;
  size.each_row(context, [&](int64_t row) {
    kernels.lstm_cell(x + row * 4 * dim, u + row * 4 * dim, memory + row * dim, int(dim), next + row * dim,
                      next_memory + row * dim);
  });
}

void SsruCell::compute(const Context& context) const {
  const CellSize size(context.input(1));
  const float* gates = size.blocks(context.input(0), 2);
  const float* memory = context.input(1).data<float>();
  float* out = context.output(0, size.shape).data<float>();
  float* next_memory = context.output(1, size.shape).data<float>();
  const int64_t dim = size.dim;
  size.each_row(context, [&](int64_t row) {
    kernels.ssru_cell(gates + row * 2 * dim, memory + row * dim, int(dim), out + row * dim, next_memory + row * dim);
  });
}

void StatesAttentionOperator::attend(const Context& context, Tensor score_weight) const {
  const Tensor query = context.input(0), keys = context.input(1), values = context.input(2);
  const Tensor lengths_in = context.input(3);
  const Shape memory = keys.shape(), values_shape = values.shape();
  require(memory.size() == 3 && values_shape.size() == 3 && memory[0] == values_shape[0] && memory[1] == values_shape[1] &&
              query.shape() == Shape{memory[0], memory[2]} && lengths_in.shape() == Shape{memory[0]} &&
              (!score_weight || score_weight.shape() == Shape{memory[2]}),
          "attention to states: wrong shapes");
  const int64_t rows = memory[0], source = memory[1], key_dim = memory[2], value_dim = values_shape[2];
  const int32_t* lengths = lengths_in.data<int32_t>();
  for (int64_t row = 0; row < rows; row++) {
    require(lengths[row] >= 0 && lengths[row] <= source, "attention to states: a length exceeds the source");
  }
  float* const weights = context.output(0, {rows, source}).data<float>();
  float* const contexts = context.output(1, {rows, value_dim}).data<float>();
  if (rows == 0) return;
  context.parallel(size_t(rows), [&](size_t row) {
    constexpr int64_t kMostLanes = 16;  // kernels write whole vectors of weights
    const int64_t length = lengths[row];
    StatesAttention attention{};
    attention.query = query.data<float>() + row * key_dim;
    attention.keys = keys.data<float>() + row * source * key_dim;
    attention.values = values.data<float>() + row * source * value_dim;
    attention.score_weight = score_weight ? score_weight.data<float>() : nullptr;
    attention.length = int(length);
    attention.key_dim = int(key_dim);
    attention.value_dim = int(value_dim);
    attention.scale = scale;
    attention.weights = reinterpret_cast<float*>(scratch(sizeof(float) * (length + kMostLanes)));
    attention.context = contexts + row * value_dim;
    kernels.attend_to_states(attention);
    float* const padding = std::copy(attention.weights, attention.weights + length, weights + row * source);
    std::fill(padding, weights + (row + 1) * source, 0.0f);
  });
}
