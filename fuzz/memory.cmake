inferscale_fuzz(fuzz_extraction SOURCES fuzz_extraction.cc LIBS inferscale_memory)
inferscale_fuzz(fuzz_filter SOURCES fuzz_filter.cc LIBS inferscale_memory)
inferscale_fuzz(fuzz_import SOURCES fuzz_import.cc LIBS inferscale_memory)
inferscale_fuzz(fuzz_export SOURCES fuzz_export.cc LIBS inferscale_memory)
