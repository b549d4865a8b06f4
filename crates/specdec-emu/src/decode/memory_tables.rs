//! Opcodes and register widths of the memory encodings: the destination, then the address, the data and, for DS, the
//! second data.

use super::row::{table, ATOMIC, LDS, NONE, PAIR};

table! {
    /// LDS.
    DS[256]
    0 [1, 1, 0] NONE => 0 DsAddU32, 1 DsSubU32, 3 DsIncU32, 4 DsDecU32, 5 DsMinI32, 6 DsMaxI32, 7 DsMinU32,
        8 DsMaxU32, 9 DsAndB32, 10 DsOrB32, 11 DsXorB32, 13 DsWriteB32, 18 DsMinF32, 19 DsMaxF32, 21 DsAddF32,
        23 DsPkAddF16, 24 DsPkAddBf16, 30 DsWriteB8, 31 DsWriteB16, 84 DsWriteB8D16Hi, 85 DsWriteB16D16Hi;
    0 [1, 1, 1] PAIR => 14 DsWrite2B32, 15 DsWrite2st64B32;
    0 [1, 1, 1] NONE => 16 DsCmpstB32, 17 DsCmpstF32;
    1 [1, 1, 0] NONE => 32 DsAddRtnU32, 33 DsSubRtnU32, 35 DsIncRtnU32, 36 DsDecRtnU32, 37 DsMinRtnI32,
        38 DsMaxRtnI32, 39 DsMinRtnU32, 40 DsMaxRtnU32, 41 DsAndRtnB32, 42 DsOrRtnB32, 43 DsXorRtnB32,
        45 DsWrxchgRtnB32, 50 DsMinRtnF32, 51 DsMaxRtnF32, 53 DsAddRtnF32, 62 DsPermuteB32,
        63 DsBpermuteB32, 183 DsPkAddRtnF16, 184 DsPkAddRtnBf16;
    1 [1, 1, 1] NONE => 48 DsCmpstRtnB32, 49 DsCmpstRtnF32;
    1 [1, 0, 0] NONE => 54 DsReadB32, 61 DsSwizzleB32, 57 DsReadI8, 58 DsReadU8, 59 DsReadI16, 60 DsReadU16,
        86 DsReadU8D16, 87 DsReadU8D16Hi, 88 DsReadI8D16, 89 DsReadI8D16Hi, 90 DsReadU16D16, 91 DsReadU16D16Hi;
    2 [1, 0, 0] PAIR => 55 DsRead2B32, 56 DsRead2st64B32;
    0 [1, 2, 0] NONE => 64 DsAddU64, 65 DsSubU64, 67 DsIncU64, 68 DsDecU64, 69 DsMinI64, 70 DsMaxI64, 71 DsMinU64,
        72 DsMaxU64, 73 DsAndB64, 74 DsOrB64, 75 DsXorB64, 77 DsWriteB64;
    0 [1, 2, 2] PAIR => 78 DsWrite2B64, 79 DsWrite2st64B64;
    0 [1, 2, 2] NONE => 80 DsCmpstB64;
    2 [1, 2, 0] NONE => 96 DsAddRtnU64, 97 DsSubRtnU64, 99 DsIncRtnU64, 100 DsDecRtnU64, 101 DsMinRtnI64,
        102 DsMaxRtnI64, 103 DsMinRtnU64, 104 DsMaxRtnU64, 105 DsAndRtnB64, 106 DsOrRtnB64, 107 DsXorRtnB64,
        109 DsWrxchgRtnB64;
    2 [1, 2, 2] NONE => 112 DsCmpstRtnB64;
    2 [1, 0, 0] NONE => 118 DsReadB64, 224 DsReadB64TrB4, 226 DsReadB64TrB8, 227 DsReadB64TrB16;
    4 [1, 0, 0] PAIR => 119 DsRead2B64, 120 DsRead2st64B64;
    0 [1, 3, 0] NONE => 222 DsWriteB96;
    0 [1, 4, 0] NONE => 223 DsWriteB128;
    3 [1, 0, 0] NONE => 225 DsReadB96TrB6, 254 DsReadB96;
    4 [1, 0, 0] NONE => 255 DsReadB128;
    0 [0, 0, 0] NONE => 20 DsNop;
}

table! {
    /// Generic addresses.
    FLAT[128]
    1 [2, 0, 0] NONE => 16 FlatLoadUbyte, 17 FlatLoadSbyte, 18 FlatLoadUshort, 19 FlatLoadSshort, 20 FlatLoadDword,
        32 FlatLoadUbyteD16, 33 FlatLoadUbyteD16Hi, 34 FlatLoadSbyteD16, 35 FlatLoadSbyteD16Hi, 36 FlatLoadShortD16,
        37 FlatLoadShortD16Hi;
    2 [2, 0, 0] NONE => 21 FlatLoadDwordx2;
    3 [2, 0, 0] NONE => 22 FlatLoadDwordx3;
    4 [2, 0, 0] NONE => 23 FlatLoadDwordx4;
    0 [2, 1, 0] NONE => 24 FlatStoreByte, 25 FlatStoreByteD16Hi, 26 FlatStoreShort, 27 FlatStoreShortD16Hi,
        28 FlatStoreDword;
    0 [2, 2, 0] NONE => 29 FlatStoreDwordx2;
    0 [2, 3, 0] NONE => 30 FlatStoreDwordx3;
    0 [2, 4, 0] NONE => 31 FlatStoreDwordx4;
    1 [2, 1, 0] ATOMIC => 64 FlatAtomicSwap, 66 FlatAtomicAdd, 67 FlatAtomicSub, 68 FlatAtomicSmin, 69 FlatAtomicUmin,
        70 FlatAtomicSmax, 71 FlatAtomicUmax, 72 FlatAtomicAnd, 73 FlatAtomicOr, 74 FlatAtomicXor,
        77 FlatAtomicAddF32, 78 FlatAtomicPkAddF16, 82 FlatAtomicPkAddBf16;
    1 [2, 2, 0] ATOMIC => 65 FlatAtomicCmpswap;
    2 [2, 2, 0] ATOMIC => 96 FlatAtomicSwapX2, 98 FlatAtomicAddX2, 99 FlatAtomicSubX2, 100 FlatAtomicSminX2,
        101 FlatAtomicUminX2, 102 FlatAtomicSmaxX2, 103 FlatAtomicUmaxX2, 104 FlatAtomicAndX2, 105 FlatAtomicOrX2,
        106 FlatAtomicXorX2;
    2 [2, 4, 0] ATOMIC => 97 FlatAtomicCmpswapX2;
}

table! {
    /// Global addresses.
    GLOBAL[128]
    1 [2, 0, 0] NONE => 16 GlobalLoadUbyte, 17 GlobalLoadSbyte, 18 GlobalLoadUshort, 19 GlobalLoadSshort,
        20 GlobalLoadDword, 32 GlobalLoadUbyteD16, 33 GlobalLoadUbyteD16Hi, 34 GlobalLoadSbyteD16,
        35 GlobalLoadSbyteD16Hi, 36 GlobalLoadShortD16, 37 GlobalLoadShortD16Hi;
    2 [2, 0, 0] NONE => 21 GlobalLoadDwordx2;
    3 [2, 0, 0] NONE => 22 GlobalLoadDwordx3;
    4 [2, 0, 0] NONE => 23 GlobalLoadDwordx4;
    0 [2, 1, 0] NONE => 24 GlobalStoreByte, 25 GlobalStoreByteD16Hi, 26 GlobalStoreShort, 27 GlobalStoreShortD16Hi,
        28 GlobalStoreDword;
    0 [2, 2, 0] NONE => 29 GlobalStoreDwordx2;
    0 [2, 3, 0] NONE => 30 GlobalStoreDwordx3;
    0 [2, 4, 0] NONE => 31 GlobalStoreDwordx4;
    0 [2, 0, 0] LDS => 38 GlobalLoadLdsUbyte, 39 GlobalLoadLdsSbyte, 40 GlobalLoadLdsUshort, 41 GlobalLoadLdsSshort,
        42 GlobalLoadLdsDword, 125 GlobalLoadLdsDwordx4, 126 GlobalLoadLdsDwordx3;
    1 [2, 1, 0] ATOMIC => 64 GlobalAtomicSwap, 66 GlobalAtomicAdd, 67 GlobalAtomicSub, 68 GlobalAtomicSmin,
        69 GlobalAtomicUmin, 70 GlobalAtomicSmax, 71 GlobalAtomicUmax, 72 GlobalAtomicAnd, 73 GlobalAtomicOr,
        74 GlobalAtomicXor, 75 GlobalAtomicInc, 76 GlobalAtomicDec, 77 GlobalAtomicAddF32, 78 GlobalAtomicPkAddF16,
        82 GlobalAtomicPkAddBf16;
    1 [2, 2, 0] ATOMIC => 65 GlobalAtomicCmpswap;
    2 [2, 2, 0] ATOMIC => 96 GlobalAtomicSwapX2, 98 GlobalAtomicAddX2, 99 GlobalAtomicSubX2, 100 GlobalAtomicSminX2,
        101 GlobalAtomicUminX2, 102 GlobalAtomicSmaxX2, 103 GlobalAtomicUmaxX2, 104 GlobalAtomicAndX2,
        105 GlobalAtomicOrX2, 106 GlobalAtomicXorX2, 107 GlobalAtomicIncX2, 108 GlobalAtomicDecX2;
    2 [2, 4, 0] ATOMIC => 97 GlobalAtomicCmpswapX2;
}

table! {
    /// Private memory.
    SCRATCH[128]
    1 [2, 0, 0] NONE => 16 ScratchLoadUbyte, 17 ScratchLoadSbyte, 18 ScratchLoadUshort, 19 ScratchLoadSshort,
        20 ScratchLoadDword, 32 ScratchLoadUbyteD16, 33 ScratchLoadUbyteD16Hi, 34 ScratchLoadSbyteD16,
        35 ScratchLoadSbyteD16Hi, 36 ScratchLoadShortD16, 37 ScratchLoadShortD16Hi;
    2 [2, 0, 0] NONE => 21 ScratchLoadDwordx2;
    3 [2, 0, 0] NONE => 22 ScratchLoadDwordx3;
    4 [2, 0, 0] NONE => 23 ScratchLoadDwordx4;
    0 [2, 1, 0] NONE => 24 ScratchStoreByte, 25 ScratchStoreByteD16Hi, 26 ScratchStoreShort,
        27 ScratchStoreShortD16Hi, 28 ScratchStoreDword;
    0 [2, 2, 0] NONE => 29 ScratchStoreDwordx2;
    0 [2, 3, 0] NONE => 30 ScratchStoreDwordx3;
    0 [2, 4, 0] NONE => 31 ScratchStoreDwordx4;
}

table! {
    /// Buffers.
    MUBUF[128]
    1 [1, 0, 0] LDS => 16 BufferLoadUbyte, 17 BufferLoadSbyte, 18 BufferLoadUshort, 19 BufferLoadSshort,
        20 BufferLoadDword;
    1 [1, 0, 0] NONE => 32 BufferLoadUbyteD16, 33 BufferLoadUbyteD16Hi, 34 BufferLoadSbyteD16,
        35 BufferLoadSbyteD16Hi, 36 BufferLoadShortD16, 37 BufferLoadShortD16Hi;
    2 [1, 0, 0] NONE => 21 BufferLoadDwordx2;
    3 [1, 0, 0] LDS => 22 BufferLoadDwordx3;
    4 [1, 0, 0] LDS => 23 BufferLoadDwordx4;
    0 [1, 1, 0] NONE => 24 BufferStoreByte, 25 BufferStoreByteD16Hi, 26 BufferStoreShort, 27 BufferStoreShortD16Hi,
        28 BufferStoreDword;
    0 [1, 2, 0] NONE => 29 BufferStoreDwordx2;
    0 [1, 3, 0] NONE => 30 BufferStoreDwordx3;
    0 [1, 4, 0] NONE => 31 BufferStoreDwordx4;
    0 [0, 0, 0] NONE => 40 BufferWbl2, 41 BufferInv;
    1 [1, 1, 0] ATOMIC => 64 BufferAtomicSwap, 66 BufferAtomicAdd, 69 BufferAtomicUmin, 71 BufferAtomicUmax,
        72 BufferAtomicAnd, 73 BufferAtomicOr, 77 BufferAtomicAddF32, 82 BufferAtomicPkAddBf16;
    1 [1, 2, 0] ATOMIC => 65 BufferAtomicCmpswap;
    2 [1, 2, 0] ATOMIC => 96 BufferAtomicSwapX2, 98 BufferAtomicAddX2, 101 BufferAtomicUminX2, 103 BufferAtomicUmaxX2,
        104 BufferAtomicAndX2, 105 BufferAtomicOrX2;
    2 [1, 4, 0] ATOMIC => 97 BufferAtomicCmpswapX2;
}

/// Whether `op` has two eight-bit offsets.
pub(super) fn is_pair(op: crate::op::Op) -> bool {
    DS.iter().flatten().any(|row| row.op == op && row.has(PAIR))
}
