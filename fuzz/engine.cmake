if(INFERSCALE_WITH_LLAMA)
  inferscale_fuzz(fuzz_state_blob SOURCES fuzz_state_blob.cc LIBS inferscale_llama)
  inferscale_fuzz(fuzz_vllm SOURCES fuzz_vllm.cc LIBS inferscale_vllm)
endif()
