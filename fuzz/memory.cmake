inferscale_fuzz(fuzz_filter SOURCES fuzz_filter.cc LIBS inferscale_memory)
inferscale_fuzz(fuzz_import SOURCES fuzz_import.cc LIBS inferscale_memory)
