// Owning pointers to what a C interface made: std::unique_ptr<Thing, CDeleter<thing_free>>.
#ifndef INFERSCALE_BASE_C_DELETER_H_
#define INFERSCALE_BASE_C_DELETER_H_

namespace inferscale {

template <auto kFree>
struct CDeleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

}  // namespace inferscale

#endif  // INFERSCALE_BASE_C_DELETER_H_
