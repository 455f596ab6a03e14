inferscale_fuzz(fuzz_segment SOURCES fuzz_segment.cc LIBS inferscale_store)
