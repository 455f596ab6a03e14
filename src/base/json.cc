// Boost.JSON's bodies, compiled once: two copies in one program would not link.
#include <boost/json/src.hpp>
