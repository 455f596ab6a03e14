if(INFERSCALE_WITH_LLAMA)
  inferscale_fuzz(fuzz_chat_request SOURCES fuzz_chat_request.cc LIBS inferscale_server)
  inferscale_fuzz(fuzz_memory_request SOURCES fuzz_memory_request.cc LIBS inferscale_server)
endif()
