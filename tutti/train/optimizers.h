#pragma once

#include "tutti/train/optimizer.h"

// The optimizers. The formulas are in graph/ops/update.h, where the updates themselves are ops;
// each has a form for rows, which changes only the rows that a gradient names. Every constructor
// throws Error for a parameter out of its range.
namespace tutti {

struct SgdConfig {
  LearningRate learning_rate = 0.01;
};
class Sgd : public Optimizer {
 public:
  explicit Sgd(const SgdConfig& config = {});

 protected:
  Output Update(const UpdateContext& context) const override;
};

struct MomentumConfig {
  LearningRate learning_rate = 0.01;
  double momentum = 0.9;
  bool nesterov = false;
};
// Slot "momentum".
class Momentum : public Optimizer {
 public:
  explicit Momentum(const MomentumConfig& config = {});

 protected:
  Output Update(const UpdateContext& context) const override;

 private:
  MomentumConfig config_;
};

struct AdagradConfig {
  LearningRate learning_rate = 0.01;
  double initial_sum = 0;  // of the squares; more than 0 tames the first steps
  double epsilon = 1e-10;
};
// Slot "square_sum".
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(const AdagradConfig& config = {});

 protected:
  Output Update(const UpdateContext& context) const override;

 private:
  AdagradConfig config_;
};

struct RMSPropConfig {
  LearningRate learning_rate = 1e-3;
  double rho = 0.9;
  double momentum = 0;
  double epsilon = 1e-8;
};
// Slot "square_mean", and "momentum" when there is one.
class RMSProp : public Optimizer {
 public:
  explicit RMSProp(const RMSPropConfig& config = {});

 protected:
  Output Update(const UpdateContext& context) const override;

 private:
  RMSPropConfig config_;
};

struct AdamConfig {
  LearningRate learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};
// Slots "m" and "v".
class Adam : public Optimizer {
 public:
  explicit Adam(const AdamConfig& config = {});

 protected:
  Output Update(const UpdateContext& context) const override;

 private:
  AdamConfig config_;
};

struct AdamWConfig {
  LearningRate learning_rate = 1e-3;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};
// Adam with weight decay that does not pass through the moments. Slots "m" and "v".
class AdamW : public Optimizer {
 public:
  explicit AdamW(const AdamWConfig& config = {});

 protected:
  Output Update(const UpdateContext& context) const override;

 private:
  AdamWConfig config_;
};

struct FtrlConfig {
  LearningRate learning_rate = 0.1;
  double l1 = 0;
  double l2 = 0;
  double beta = 1;
};
// Slots "n" and "z".
class Ftrl : public Optimizer {
 public:
  explicit Ftrl(const FtrlConfig& config = {});

 protected:
  Output Update(const UpdateContext& context) const override;

 private:
  FtrlConfig config_;
};

}  // namespace tutti
