// Launches recorded in a CUDA graph do what they do by themselves. Only where there is a GPU: the
// emulation has no graphs.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "device_case.h"
#include "device_under_test.h"

namespace inferscale {
namespace {

class DeviceGraphTest : public testing::Test {
 protected:
  Device& device() { return DeviceUnderTest(); }

  // Records what `launch` gives to a stream, and runs it twice.
  template <typename Launch>
  void Replay(Launch launch) {
    DeviceStream stream = device().CreateStream().value();
    auto* const cuda_stream = static_cast<cudaStream_t>(stream);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t program = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(cuda_stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    const Status launched = launch(stream);
    ASSERT_EQ(cudaStreamEndCapture(cuda_stream, &graph), cudaSuccess);
    ASSERT_TRUE(launched) << launched.error().message;
    ASSERT_EQ(cudaGraphInstantiate(&program, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(program, cuda_stream), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(program, cuda_stream), cudaSuccess);
    ASSERT_TRUE(device().Synchronize(stream));
    ASSERT_EQ(cudaGraphExecDestroy(program), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    ASSERT_TRUE(device().DestroyStream(stream));
  }
};

TEST_F(DeviceGraphTest, InjectAndCaptureReplay) {
  Random random(TestSeed());
  for (int i = CasesForDevice(10); i > 0 && !HasFailure(); --i) {
    DeviceCase test(device(), random);
    SCOPED_TRACE(fmt::format("INFERSCALE_TEST_SEED={}: {}", TestSeed(), test.Describe()));
    Replay([&](DeviceStream stream) {
      return device().Inject(test.transfer(), test.cache(), stream);
    });
    test.ExpectSameCache(test.Cache(), test.InjectedCache());
    test.ResetCache();
    test.PoisonRecords();
    ASSERT_TRUE(device().Synchronize(nullptr));
    Replay([&](DeviceStream stream) {
      return device().Capture(test.transfer(), test.cache(), stream);
    });
    for (size_t s = 0; s < test.spans.size(); ++s) {
      test.ExpectSameRecord(s, test.Record(s), test.CapturedRecord(s));
    }
  }
}

}  // namespace
}  // namespace inferscale
