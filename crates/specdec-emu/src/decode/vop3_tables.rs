//! Opcodes, register widths and modifiers of the instructions that exist in a 64-bit vector encoding only.

use super::row::{
    table, BITOP3, CLAMP, DST_ACC, F8F6F4, FLOAT1, FLOAT2, FLOAT3, MIX, NEG0, NEG1, NEG2, NONE, OPSEL, PACKED_F32,
    RESULT_BYTE, SCALAR_DST, SDST, SRC_ACC, VECTOR_SRC, WHOLE,
};

/// VOP3 opcodes below this one are VOPC, VOP2 and VOP1 instructions.
pub(super) const FIRST_VOP3: usize = 448;

table! {
    /// VOP3 and VOP3B, counted from [`FIRST_VOP3`].
    VOP3[448]
    1 [1, 1, 1] CLAMP => 2 VMadI32I24, 3 VMadU32U24, 25 VSadU8, 26 VSadHiU8, 27 VSadU16, 28 VSadU32,
        43 VMadLegacyU16, 44 VMadLegacyI16;
    1 [1, 1, 1] FLOAT3 => 4 VCubeidF32, 11 VFmaF32, 16 VMin3F32, 19 VMax3F32, 22 VMed3F32, 30 VDivFixupF32,
        34 VDivFmasF32, 232 VMinimum3F32, 233 VMaximum3F32;
    1 [1, 1, 1] NONE => 8 VBfeU32, 9 VBfeI32, 10 VBfiB32, 17 VMin3I32, 18 VMin3U32, 20 VMax3I32, 21 VMax3U32,
        23 VMed3I32, 24 VMed3U32, 45 VPermB32, 51 VXadU32, 61 VLshlAddU32, 62 VAddLshlU32, 63 VAdd3U32,
        64 VLshlOrB32, 65 VAndOrB32, 66 VOr3B32;
    2 [2, 2, 2] FLOAT3 => 12 VFmaF64;
    1 [1, 1, 1] CLAMP | OPSEL => 14 VAlignbitB32, 15 VAlignbyteB32, 49 VMadU32U16, 50 VMadI32I16, 53 VMin3I16,
        54 VMin3U16, 56 VMax3I16, 57 VMax3U16, 59 VMed3I16, 60 VMed3U16, 68 VMadU16, 69 VMadI16;
    1 [1, 1, 1] NEG0 | CLAMP => 29 VCvtPkU8F32;
    1 [1, 1, 1] FLOAT3 | SDST => 32 VDivScaleF32;
    2 [1, 1, 2] CLAMP | SDST => 40 VMadU64U32, 41 VMadI64I32;
    1 [1, 1, 1] FLOAT3 | OPSEL => 52 VMin3F16, 55 VMax3F16, 58 VMed3F16, 70 VFmaF16, 71 VDivFixupF16;
    2 [2, 1, 2] NONE => 72 VLshlAddU64;
    1 [1, 1, 1] OPSEL | BITOP3 => 115 VBitop3B16;
    1 [1, 1, 1] BITOP3 => 116 VBitop3B32;
    1 [1, 1, 1] NEG0 | NEG1 | NEG2 | OPSEL => 117 VCvtScalef32PkFp8F32, 118 VCvtScalef32PkBf8F32,
        125 VCvtScalef32PkFp4F32;
    1 [1, 1, 1] NEG0 | NEG2 | OPSEL => 119 VCvtScalef32SrFp8F32, 120 VCvtScalef32SrBf8F32, 130 VCvtScalef32SrFp8F16,
        131 VCvtScalef32SrBf8F16, 134 VCvtScalef32SrFp8Bf16, 135 VCvtScalef32SrBf8Bf16, 142 VCvtScalef32SrPkFp4F16,
        143 VCvtScalef32SrPkFp4Bf16;
    2 [1, 1, 0] NEG1 | OPSEL => 121 VCvtScalef32PkF32Fp8, 122 VCvtScalef32PkF32Bf8, 127 VCvtScalef32PkF32Fp4;
    1 [1, 1, 0] NEG1 | OPSEL => 123 VCvtScalef32F32Fp8, 124 VCvtScalef32F32Bf8, 136 VCvtScalef32PkF16Fp8,
        137 VCvtScalef32PkF16Bf8, 138 VCvtScalef32F16Fp8, 139 VCvtScalef32F16Bf8, 144 VCvtScalef32PkF16Fp4,
        145 VCvtScalef32PkBf16Fp4, 169 VCvtScalef32PkBf16Fp8, 170 VCvtScalef32PkBf16Bf8;
    1 [2, 1, 1] NEG0 | NEG2 | OPSEL | VECTOR_SRC => 126 VCvtScalef32SrPkFp4F32;
    1 [1, 1, 0] NEG0 | NEG1 | OPSEL => 128 VCvtScalef32PkFp8F16, 129 VCvtScalef32PkBf8F16, 132 VCvtScalef32PkFp8Bf16,
        133 VCvtScalef32PkBf8Bf16, 226 VCvtPkFp8F32, 227 VCvtPkBf8F32;
    1 [1, 1, 0] NEG0 | NEG1 | OPSEL | RESULT_BYTE => 140 VCvtScalef32PkFp4F16, 141 VCvtScalef32PkFp4Bf16;
    6 [16, 16, 1] NONE => 146 VCvtScalef322xpk16Fp6F32, 147 VCvtScalef322xpk16Bf6F32;
    6 [32, 1, 1] NONE => 148 VCvtScalef32SrPk32Fp6F32, 149 VCvtScalef32SrPk32Bf6F32;
    32 [6, 1, 0] NONE => 150 VCvtScalef32Pk32F32Fp6, 151 VCvtScalef32Pk32F32Bf6;
    6 [16, 1, 0] NONE => 152 VCvtScalef32Pk32Fp6F16, 153 VCvtScalef32Pk32Fp6Bf16, 154 VCvtScalef32Pk32Bf6F16,
        155 VCvtScalef32Pk32Bf6Bf16;
    6 [16, 1, 1] NONE => 156 VCvtScalef32SrPk32Fp6F16, 157 VCvtScalef32SrPk32Fp6Bf16, 158 VCvtScalef32SrPk32Bf6F16,
        159 VCvtScalef32SrPk32Bf6Bf16;
    16 [6, 1, 0] NONE => 160 VCvtScalef32Pk32F16Fp6, 161 VCvtScalef32Pk32Bf16Fp6, 162 VCvtScalef32Pk32F16Bf6,
        163 VCvtScalef32Pk32Bf16Bf6;
    1 [1, 1, 1] OPSEL => 165 VAshrPkI8I32, 166 VAshrPkU8I32;
    1 [1, 1, 0] FLOAT2 => 167 VCvtPkF16F32, 168 VCvtPkBf16F32, 214 VCvtPkrtzF16F32, 225 VMulLegacyF32;
    2 [2, 2, 0] FLOAT2 => 192 VAddF64, 193 VMulF64, 194 VMinF64, 195 VMaxF64;
    2 [2, 1, 0] FLOAT1 => 196 VLdexpF64;
    1 [1, 1, 0] NONE => 197 VMulLoU32, 198 VMulHiU32, 199 VMulHiI32, 202 VWritelaneB32, 203 VBcntU32B32,
        204 VMbcntLoU32B32, 205 VMbcntHiU32B32, 211 VBfmB32, 215 VCvtPkU16U32, 216 VCvtPkI16I32;
    1 [1, 1, 0] FLOAT1 => 200 VLdexpF32;
    1 [1, 1, 0] SCALAR_DST | VECTOR_SRC => 201 VReadlaneB32;
    2 [1, 2, 0] NONE => 207 VLshlrevB64, 208 VLshrrevB64, 209 VAshrrevI64;
    1 [1, 1, 0] NEG0 | NEG1 | CLAMP => 212 VCvtPknormI16F32, 213 VCvtPknormU16F32;
    1 [1, 1, 0] CLAMP => 220 VAddI32, 221 VSubI32;
    1 [1, 1, 0] CLAMP | OPSEL => 222 VAddI16, 223 VSubI16;
    1 [1, 1, 0] NEG0 | NEG1 | CLAMP | OPSEL => 224 VPackB32F16;
    1 [1, 1, 0] NEG0 | OPSEL | RESULT_BYTE => 228 VCvtSrFp8F32, 229 VCvtSrBf8F32;
    1 [1, 1, 0] NEG0 | OPSEL => 230 VCvtSrF16F32, 231 VCvtSrBf16F32;
}

table! {
    /// Packed math, mixed-precision FMA and dot products.
    VOP3P[64]
    1 [1, 1, 1] NONE => 0 VPkMadI16, 9 VPkMadU16, 14 VPkFmaF16, 26 VDot2F32Bf16, 27 VPkMinimum3F16,
        28 VPkMaximum3F16, 35 VDot2F32F16, 38 VDot2I32I16,
        39 VDot2U32U16;
    1 [1, 1, 1] WHOLE => 40 VDot4I32I8, 41 VDot4U32U8, 42 VDot8I32I4, 43 VDot8U32U4;
    1 [1, 1, 0] NONE => 1 VPkMulLoU16, 2 VPkAddI16, 3 VPkSubI16, 4 VPkLshlrevB16, 5 VPkLshrrevB16, 6 VPkAshrrevI16,
        7 VPkMaxI16, 8 VPkMinI16, 10 VPkAddU16, 11 VPkSubU16, 12 VPkMaxU16, 13 VPkMinU16, 15 VPkAddF16, 16 VPkMulF16,
        17 VPkMinF16, 18 VPkMaxF16;
    2 [2, 2, 2] PACKED_F32 => 48 VPkFmaF32;
    2 [2, 2, 0] PACKED_F32 => 49 VPkMulF32, 50 VPkAddF32, 51 VPkMovB32;
    1 [1, 1, 1] MIX => 32 VFmaMixF32, 33 VFmaMixloF16, 34 VFmaMixhiF16;
}

table! {
    /// The matrix unit. Operand widths of the F8F6F4 rows are the widest format's.
    MAI[128]
    4 [4, 4, 4] NONE => 53 VMfmaF3216x16x32Bf16, 54 VMfmaI3216x16x64I8, 84 VMfmaF3216x16x32F16;
    16 [4, 4, 16] NONE => 55 VMfmaF3232x32x16Bf16, 56 VMfmaI3232x32x32I8, 85 VMfmaF3232x32x16F16;
    32 [1, 1, 32] NONE => 64 VMfmaF3232x32x12bF32, 80 VMfmaI3232x32x42bI8;
    16 [1, 1, 16] NONE => 65 VMfmaF3216x16x14bF32, 68 VMfmaF3232x32x2F32, 81 VMfmaI3216x16x44bI8;
    4 [1, 1, 4] NONE => 66 VMfmaF324x4x116bF32, 69 VMfmaF3216x16x4F32, 82 VMfmaI324x4x416bI8;
    32 [2, 2, 32] NONE => 72 VMfmaF3232x32x42bF16, 93 VMfmaF3232x32x42bBf16;
    16 [2, 2, 16] NONE => 73 VMfmaF3216x16x44bF16, 76 VMfmaF3232x32x8F16, 86 VMfmaI3232x32x16I8,
        94 VMfmaF3216x16x44bBf16, 96 VMfmaF3232x32x8Bf16, 116 VMfmaF3232x32x16Bf8Bf8, 117 VMfmaF3232x32x16Bf8Fp8,
        118 VMfmaF3232x32x16Fp8Bf8, 119 VMfmaF3232x32x16Fp8Fp8;
    4 [2, 2, 4] NONE => 74 VMfmaF324x4x416bF16, 77 VMfmaF3216x16x16F16, 87 VMfmaI3216x16x32I8,
        95 VMfmaF324x4x416bBf16, 97 VMfmaF3216x16x16Bf16, 112 VMfmaF3216x16x32Bf8Bf8, 113 VMfmaF3216x16x32Bf8Fp8,
        114 VMfmaF3216x16x32Fp8Bf8, 115 VMfmaF3216x16x32Fp8Fp8;
    1 [1, 0, 0] SRC_ACC => 88 VAccvgprReadB32;
    4 [8, 8, 4] F8F6F4 => 45 VMfmaF3216x16x128F8f6f4;
    16 [8, 8, 16] F8F6F4 => 46 VMfmaF3232x32x64F8f6f4;
    1 [1, 0, 0] DST_ACC => 89 VAccvgprWriteB32;
}
