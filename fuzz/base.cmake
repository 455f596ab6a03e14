inferscale_fuzz(fuzz_sse SOURCES fuzz_sse.cc LIBS inferscale_http)
