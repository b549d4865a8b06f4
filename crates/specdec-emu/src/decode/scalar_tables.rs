//! Opcodes and register widths of the scalar encodings.

use super::row::{table, NONE, NO_IMM};

table! {
    /// Two sources.
    SOP2[128]
    1 [1, 1, 0] NONE => 0 SAddU32, 1 SSubU32, 2 SAddI32, 3 SSubI32, 4 SAddcU32, 5 SSubbU32, 6 SMinI32, 7 SMinU32,
        8 SMaxI32, 9 SMaxU32, 10 SCselectB32, 12 SAndB32, 14 SOrB32, 16 SXorB32, 18 SAndn2B32, 20 SOrn2B32,
        22 SNandB32, 24 SNorB32, 26 SXnorB32, 28 SLshlB32, 30 SLshrB32, 32 SAshrI32, 34 SBfmB32, 36 SMulI32,
        37 SBfeU32, 38 SBfeI32, 42 SAbsdiffI32, 44 SMulHiU32, 45 SMulHiI32, 46 SLshl1AddU32, 47 SLshl2AddU32,
        48 SLshl3AddU32, 49 SLshl4AddU32, 50 SPackLlB32B16, 51 SPackLhB32B16, 52 SPackHhB32B16;
    2 [2, 2, 0] NONE => 11 SCselectB64, 13 SAndB64, 15 SOrB64, 17 SXorB64, 19 SAndn2B64, 21 SOrn2B64, 23 SNandB64,
        25 SNorB64, 27 SXnorB64;
    2 [2, 1, 0] NONE => 29 SLshlB64, 31 SLshrB64, 33 SAshrI64, 39 SBfeU64, 40 SBfeI64;
    2 [1, 1, 0] NONE => 35 SBfmB64;
    0 [2, 2, 0] NONE => 41 SCbranchGFork;
}

table! {
    /// One source.
    SOP1[256]
    1 [1, 0, 0] NONE => 0 SMovB32, 2 SCmovB32, 4 SNotB32, 6 SWqmB32, 8 SBrevB32, 10 SBcnt0I32B32, 12 SBcnt1I32B32,
        14 SFf0I32B32, 16 SFf1I32B32, 18 SFlbitI32B32, 20 SFlbitI32, 22 SSextI32I8, 23 SSextI32I16, 24 SBitset0B32,
        26 SBitset1B32, 40 SQuadmaskB32, 42 SMovrelsB32, 44 SMovreldB32, 48 SAbsI32;
    2 [2, 0, 0] NONE => 1 SMovB64, 3 SCmovB64, 5 SNotB64, 7 SWqmB64, 9 SBrevB64, 30 SSwappcB64, 32 SAndSaveexecB64,
        33 SOrSaveexecB64, 34 SXorSaveexecB64, 35 SAndn2SaveexecB64, 36 SOrn2SaveexecB64, 37 SNandSaveexecB64,
        38 SNorSaveexecB64, 39 SXnorSaveexecB64, 41 SQuadmaskB64, 43 SMovrelsB64, 45 SMovreldB64,
        51 SAndn1SaveexecB64, 52 SOrn1SaveexecB64, 53 SAndn1WrexecB64, 54 SAndn2WrexecB64;
    1 [2, 0, 0] NONE => 11 SBcnt0I32B64, 13 SBcnt1I32B64, 15 SFf0I32B64, 17 SFf1I32B64, 19 SFlbitI32B64,
        21 SFlbitI32I64;
    2 [1, 0, 0] NONE => 25 SBitset0B64, 27 SBitset1B64, 55 SBitreplicateB64B32;
    2 [0, 0, 0] NONE => 28 SGetpcB64;
    0 [2, 0, 0] NONE => 29 SSetpcB64;
    0 [1, 0, 0] NONE => 50 SSetGprIdxIdx;
}

table! {
    /// Comparisons into SCC.
    SOPC[128]
    0 [1, 1, 0] NONE => 0 SCmpEqI32, 1 SCmpLgI32, 2 SCmpGtI32, 3 SCmpGeI32, 4 SCmpLtI32, 5 SCmpLeI32, 6 SCmpEqU32,
        7 SCmpLgU32, 8 SCmpGtU32, 9 SCmpGeU32, 10 SCmpLtU32, 11 SCmpLeU32, 12 SBitcmp0B32, 13 SBitcmp1B32,
        17 SSetGprIdxOn;
    0 [2, 1, 0] NONE => 14 SBitcmp0B64, 15 SBitcmp1B64;
    0 [2, 2, 0] NONE => 18 SCmpEqU64, 19 SCmpLgU64;
}

table! {
    /// A register and a 16-bit immediate.
    SOPK[32]
    1 [0, 0, 0] NONE => 0 SMovkI32, 1 SCmovkI32, 2 SCmpkEqI32, 3 SCmpkLgI32, 4 SCmpkGtI32, 5 SCmpkGeI32, 6 SCmpkLtI32,
        7 SCmpkLeI32, 8 SCmpkEqU32, 9 SCmpkLgU32, 10 SCmpkGtU32, 11 SCmpkGeU32, 12 SCmpkLtU32, 13 SCmpkLeU32,
        14 SAddkI32, 15 SMulkI32, 17 SGetregB32, 18 SSetregB32, 20 SSetregImm32B32;
    2 [0, 0, 0] NONE => 21 SCallB64;
}

table! {
    /// Program control: an immediate at most.
    SOPP[128]
    0 [0, 0, 0] NONE => 0 SNop, 1 SEndpgm, 2 SBranch, 4 SCbranchScc0, 5 SCbranchScc1, 6 SCbranchVccz, 7 SCbranchVccnz,
        8 SCbranchExecz, 9 SCbranchExecnz, 12 SWaitcnt, 13 SSethalt, 14 SSleep, 15 SSetprio, 18 STrap,
        23 SCbranchCdbgsys, 29 SSetGprIdxMode;
    0 [0, 0, 0] NO_IMM => 3 SWakeup, 10 SBarrier, 19 SIcacheInv, 22 STtracedata, 27 SEndpgmSaved, 28 SSetGprIdxOff;
}

table! {
    /// Scalar memory: the destination and the base.
    SMEM[256]
    1 [2, 0, 0] NONE => 0 SLoadDword;
    2 [2, 0, 0] NONE => 1 SLoadDwordx2;
    4 [2, 0, 0] NONE => 2 SLoadDwordx4;
    8 [2, 0, 0] NONE => 3 SLoadDwordx8;
    16 [2, 0, 0] NONE => 4 SLoadDwordx16;
    1 [4, 0, 0] NONE => 8 SBufferLoadDword;
    2 [4, 0, 0] NONE => 9 SBufferLoadDwordx2;
    4 [4, 0, 0] NONE => 10 SBufferLoadDwordx4;
    8 [4, 0, 0] NONE => 11 SBufferLoadDwordx8;
    16 [4, 0, 0] NONE => 12 SBufferLoadDwordx16;
    0 [0, 0, 0] NONE => 32 SDcacheInv, 33 SDcacheWb;
    2 [0, 0, 0] NONE => 36 SMemtime, 37 SMemrealtime;
}
