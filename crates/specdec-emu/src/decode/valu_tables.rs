//! Opcodes, register widths and modifiers of VOP1, VOP2 and VOPC. Their VOP3 forms share the rows: a VOP3 opcode
//! below 256 is a VOPC one, below 320 a VOP2 one, below 448 a VOP1 one.

use super::row::{
    table, ACC, CARRY_OUT, CLAMP, FLOAT1, FLOAT2, FMAAK, FMAMK, INT_RESULT, NEG0, NEG1, NONE, NO_DPP, NO_SDWA,
    NO_SUFFIX, OMOD, ONLY_E32, OPSEL, SCALAR_DST, SDWA_SRC_ONLY, VCC_IN, VECTOR_SRC,
};

table! {
    /// One source.
    VOP1[128]
    0 [0, 0, 0] NO_DPP | NO_SDWA | NO_SUFFIX => 0 VNop, 53 VClrexcp;
    1 [1, 0, 0] NONE => 1 VMovB32, 43 VNotB32, 44 VBfrevB32, 45 VFfbhU32, 46 VFfblB32, 47 VFfbhI32, 79 VSatPkU8I16,
        88 VPrngB32;
    1 [1, 0, 0] SCALAR_DST | VECTOR_SRC | ONLY_E32 => 2 VReadfirstlaneB32;
    1 [1, 0, 0] CLAMP | OMOD => 5 VCvtF32I32, 6 VCvtF32U32, 14 VCvtOffF32I4, 17 VCvtF32Ubyte0, 18 VCvtF32Ubyte1,
        19 VCvtF32Ubyte2, 20 VCvtF32Ubyte3, 57 VCvtF16U16, 58 VCvtF16I16;
    1 [1, 0, 0] FLOAT1 => 10 VCvtF16F32, 11 VCvtF32F16, 27 VFractF32, 28 VTruncF32, 29 VCeilF32, 30 VRndneF32,
        31 VFloorF32, 32 VExpF32, 33 VLogF32, 34 VRcpF32, 35 VRcpIflagF32, 36 VRsqF32, 39 VSqrtF32, 41 VSinF32,
        42 VCosF32, 52 VFrexpMantF32, 61 VRcpF16, 62 VSqrtF16, 63 VRsqF16, 64 VLogF16, 65 VExpF16, 66 VFrexpMantF16,
        68 VFloorF16, 69 VCeilF16, 70 VTruncF16, 71 VRndneF16, 72 VFractF16, 73 VSinF16, 74 VCosF16, 91 VCvtF32Bf16;
    1 [1, 0, 0] FLOAT1 | INT_RESULT => 7 VCvtU32F32, 8 VCvtI32F32, 59 VCvtU16F16, 60 VCvtI16F16, 67 VFrexpExpI16F16,
        77 VCvtNormI16F16, 78 VCvtNormU16F16;
    1 [1, 0, 0] NEG0 | CLAMP => 12 VCvtRpiI32F32, 13 VCvtFlrI32F32, 51 VFrexpExpI32F32;
    1 [2, 0, 0] FLOAT1 | NO_SDWA => 15 VCvtF32F64;
    2 [1, 0, 0] FLOAT1 | NO_SDWA => 16 VCvtF64F32;
    2 [2, 0, 0] NO_SDWA => 56 VMovB64;
    2 [2, 0, 0] FLOAT1 | NO_SDWA => 23 VTruncF64, 24 VCeilF64, 25 VRndneF64, 26 VFloorF64, 37 VRcpF64, 38 VRsqF64,
        40 VSqrtF64, 49 VFrexpMantF64, 50 VFractF64;
    1 [2, 0, 0] NEG0 | CLAMP | NO_SDWA => 3 VCvtI32F64, 21 VCvtU32F64, 48 VFrexpExpI32F64;
    2 [1, 0, 0] CLAMP | OMOD | NO_SDWA => 4 VCvtF64I32, 22 VCvtF64U32;
    1 [1, 0, 0] VECTOR_SRC | ONLY_E32 => 81 VSwapB32;
    1 [1, 0, 0] ACC | ONLY_E32 => 82 VAccvgprMovB32;
    1 [1, 0, 0] CLAMP | OMOD | SDWA_SRC_ONLY => 84 VCvtF32Fp8, 85 VCvtF32Bf8;
    2 [1, 0, 0] CLAMP | OMOD | SDWA_SRC_ONLY => 86 VCvtPkF32Fp8, 87 VCvtPkF32Bf8;
    1 [1, 0, 0] OPSEL | VECTOR_SRC | NO_DPP | NO_SDWA => 89 VPermlane16SwapB32, 90 VPermlane32SwapB32;
}

table! {
    /// Two sources; carries and `v_cndmask` read VCC too.
    VOP2[64]
    1 [1, 1, 2] NEG0 | NEG1 | VCC_IN => 0 VCndmaskB32;
    1 [1, 1, 0] FLOAT2 => 1 VAddF32, 2 VSubF32, 3 VSubrevF32, 5 VMulF32, 10 VMinF32, 11 VMaxF32, 31 VAddF16,
        32 VSubF16, 33 VSubrevF16, 34 VMulF16, 45 VMaxF16, 46 VMinF16;
    1 [1, 1, 0] CLAMP => 6 VMulI32I24, 8 VMulU32U24, 38 VAddU16, 39 VSubU16, 40 VSubrevU16, 52 VAddU32, 53 VSubU32,
        54 VSubrevU32;
    1 [1, 1, 0] NONE => 7 VMulHiI32I24, 9 VMulHiU32U24, 12 VMinI32, 13 VMaxI32, 14 VMinU32, 15 VMaxU32,
        16 VLshrrevB32, 17 VAshrrevI32, 18 VLshlrevB32, 19 VAndB32, 20 VOrB32, 21 VXorB32, 41 VMulLoU16,
        42 VLshlrevB16, 43 VLshrrevB16, 44 VAshrrevI16, 47 VMaxU16, 48 VMaxI16, 49 VMinU16, 50 VMinI16, 61 VXnorB32;
    1 [1, 1, 0] FLOAT2 | NO_SDWA => 22 VDot2cF32Bf16, 55 VDot2cF32F16, 59 VFmacF32, 60 VPkFmacF16;
    2 [2, 2, 0] FLOAT2 | NO_SDWA => 4 VFmacF64;
    1 [1, 1, 0] FMAMK | ONLY_E32 => 23 VFmamkF32;
    1 [1, 1, 0] FMAAK | ONLY_E32 => 24 VFmaakF32;
    1 [1, 1, 0] CLAMP | CARRY_OUT => 25 VAddCoU32, 26 VSubCoU32, 27 VSubrevCoU32;
    1 [1, 1, 2] CLAMP | CARRY_OUT | VCC_IN => 28 VAddcCoU32, 29 VSubbCoU32, 30 VSubbrevCoU32;
    1 [1, 1, 0] FLOAT1 => 51 VLdexpF16;
}

table! {
    /// Comparisons: the destination is a lane mask.
    VOPC[256]
    2 [1, 1, 0] NEG0 => 16 VCmpClassF32, 20 VCmpClassF16;
    2 [1, 1, 0] NEG0 | NEG1 | CLAMP => 32 VCmpFF16, 33 VCmpLtF16, 34 VCmpEqF16, 35 VCmpLeF16, 36 VCmpGtF16,
        37 VCmpLgF16, 38 VCmpGeF16, 39 VCmpOF16, 40 VCmpUF16, 41 VCmpNgeF16, 42 VCmpNlgF16, 43 VCmpNgtF16,
        44 VCmpNleF16, 45 VCmpNeqF16, 46 VCmpNltF16, 47 VCmpTruF16, 64 VCmpFF32, 65 VCmpLtF32, 66 VCmpEqF32,
        67 VCmpLeF32, 68 VCmpGtF32, 69 VCmpLgF32, 70 VCmpGeF32, 71 VCmpOF32, 72 VCmpUF32, 73 VCmpNgeF32,
        74 VCmpNlgF32, 75 VCmpNgtF32, 76 VCmpNleF32, 77 VCmpNeqF32, 78 VCmpNltF32, 79 VCmpTruF32;
    2 [2, 1, 0] NEG0 | NO_SDWA => 18 VCmpClassF64;
    2 [2, 2, 0] NEG0 | NEG1 | CLAMP | NO_SDWA => 96 VCmpFF64, 97 VCmpLtF64, 98 VCmpEqF64, 99 VCmpLeF64, 100 VCmpGtF64, 101 VCmpLgF64, 102 VCmpGeF64, 103 VCmpOF64, 104 VCmpUF64, 105 VCmpNgeF64, 106 VCmpNlgF64, 107 VCmpNgtF64, 108 VCmpNleF64, 109 VCmpNeqF64, 110 VCmpNltF64, 111 VCmpTruF64;
    2 [1, 1, 0] NONE => 160 VCmpFI16, 161 VCmpLtI16, 162 VCmpEqI16, 163 VCmpLeI16, 164 VCmpGtI16, 165 VCmpNeI16,
        166 VCmpGeI16, 167 VCmpTI16, 168 VCmpFU16, 169 VCmpLtU16, 170 VCmpEqU16, 171 VCmpLeU16, 172 VCmpGtU16,
        173 VCmpNeU16, 174 VCmpGeU16, 175 VCmpTU16, 192 VCmpFI32, 193 VCmpLtI32, 194 VCmpEqI32, 195 VCmpLeI32,
        196 VCmpGtI32, 197 VCmpNeI32, 198 VCmpGeI32, 199 VCmpTI32, 200 VCmpFU32, 201 VCmpLtU32, 202 VCmpEqU32,
        203 VCmpLeU32, 204 VCmpGtU32, 205 VCmpNeU32, 206 VCmpGeU32, 207 VCmpTU32, 217 VCmpxLtU32, 218 VCmpxEqU32,
        219 VCmpxLeU32, 220 VCmpxGtU32, 221 VCmpxNeU32, 222 VCmpxGeU32;
    2 [2, 2, 0] NO_SDWA => 224 VCmpFI64, 225 VCmpLtI64, 226 VCmpEqI64, 227 VCmpLeI64, 228 VCmpGtI64, 229 VCmpNeI64,
        230 VCmpGeI64, 231 VCmpTI64, 232 VCmpFU64, 233 VCmpLtU64, 234 VCmpEqU64, 235 VCmpLeU64, 236 VCmpGtU64,
        237 VCmpNeU64, 238 VCmpGeU64, 239 VCmpTU64;
}
