// What the handler of a signal has to find, whatever the other threads do at that time.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace llm {

/// Entries come and go from any thread. Their places are never freed but used again, so that a handler may walk through
/// them; whoever takes an entry out of its place has it alone. To be a variable of static storage.
template <class T>
class HandlerList {
  struct Place {
    std::atomic<T*> value{nullptr};
    Place* next = nullptr;
  };
  struct Remove {
    void operator()(Place* place) const noexcept { delete place->value.exchange(nullptr); }
  };

 public:
  using Entry = std::unique_ptr<Place, Remove>;  ///< in the list for as long as it lives

  Entry add(T value) {
    auto owned = std::make_unique<T>(std::move(value));
    for (Place* place = first_.load(); place != nullptr; place = place->next) {
      T* none = nullptr;
      if (!place->value.compare_exchange_strong(none, owned.get())) continue;
      (void)owned.release();
      return Entry(place);
    }
    auto place = std::make_unique<Place>();
    place->value = owned.release();
    place->next = first_.load();
    while (!first_.compare_exchange_weak(place->next, place.get())) {
    }
    return Entry(place.release());
  }

  /// For a handler after which the program ends: takes the entries out and never frees them.
  template <class Use>
  void take_all(const Use& use) noexcept {
    for (Place* place = first_.load(); place != nullptr; place = place->next) {
      if (const T* value = place->value.exchange(nullptr)) use(*value);
    }
  }

 private:
  std::atomic<Place*> first_{nullptr};
  static_assert(std::atomic<T*>::is_always_lock_free);
};

}  // namespace llm
