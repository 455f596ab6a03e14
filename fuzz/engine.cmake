if(INFERSCALE_WITH_LLAMA)
  inferscale_fuzz(fuzz_state_blob SOURCES fuzz_state_blob.cc LIBS inferscale_llama)
endif()
