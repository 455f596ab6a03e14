if(INFERSCALE_WITH_LLAMA)
  inferscale_fuzz(fuzz_score_request SOURCES fuzz_score_request.cc LIBS inferscale_cli)
endif()
