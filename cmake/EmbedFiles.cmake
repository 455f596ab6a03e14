# Writes files as bytes into a C++ source that defines PageFiles() (server/page.h); run with
#   cmake -DOUTPUT=page_files.cc -DFOLDER=src/server/page -DNAMES="index.html;style.css" -P EmbedFiles.cmake
set(arrays "")
set(entries "")
set(number 0)
foreach(name ${NAMES})
  file(READ "${FOLDER}/${name}" bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kFile${number}[] = {${bytes}};\n")
  string(APPEND entries "    {\"${name}\", {reinterpret_cast<const char*>(kFile${number}), sizeof(kFile${number})}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include \"server/page.h\"

namespace inferscale {
namespace {
${arrays}
const PageFile kFiles[] = {
${entries}};
}  // namespace

std::span<const PageFile> PageFiles() { return kFiles; }

}  // namespace inferscale
")
