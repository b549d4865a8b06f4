// Fixed-width integers: device code is compiled without any system header.
#pragma once

using uint8_t = unsigned char;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using uint64_t = unsigned long;

static_assert(sizeof(uint32_t) == 4 && sizeof(uint64_t) == 8, "the ABI structs rely on these widths");
