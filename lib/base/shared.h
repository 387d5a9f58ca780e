// A value that copies share: whoever has one has the same, and nobody changes it.
#pragma once

#include <memory>
#include <utility>

namespace llm {

template <class T>
class Shared {
 public:
  Shared(T value) : value_(std::make_shared<const T>(std::move(value))) {}  // in place of a T, wherever one is given

  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }

 private:
  std::shared_ptr<const T> value_;
};

}  // namespace llm
