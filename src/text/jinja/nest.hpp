// The guard of nested evaluation.
#pragma once

#include <cstdlib>

#include "text/jinja/context.hpp"

namespace quipu::text::jinja {

/// One level of nested evaluation. The dispatching functions stay small, so that a level takes little stack.
class Context::Nest {
 public:
  explicit Nest(Context& context) : context_(context) {
    const char* here = static_cast<const char*>(__builtin_frame_address(0));
    if (++context_.depth_ > context_.limits_.depth ||
        static_cast<std::size_t>(std::abs(context_.stack_base_ - here)) > context_.limits_.stack) {
      --context_.depth_;
      context_.fail_limit("levels of nested evaluation");
    }
  }
  ~Nest() { --context_.depth_; }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;

 private:
  Context& context_;
};

}  // namespace quipu::text::jinja
