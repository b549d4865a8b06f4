// Every modifier that spec/isa.md names, and its neighbours: assembled, then decoded and printed back.
buffer_load_dword v0, v1, s[8:11], 0 offen
buffer_load_dword v0, v1, s[8:11], s3 offen sc0 sc1
buffer_load_dword v0, v1, s[8:11], s3 offen offset:4095 sc1
buffer_load_dword v0, off, s[8:11], 0 sc0 sc1
buffer_load_dword v0, v[2:3], s[8:11], m0 idxen offen offset:16 sc0 nt sc1
buffer_load_dword a0, v2, s[8:11], 0.5 idxen
buffer_load_dwordx2 v[0:1], v2, s[8:11], s3 offen
buffer_load_dwordx2 v[0:1], v2, s[8:11], s3 offen sc0 sc1
buffer_load_dwordx2 v[0:1], v2, s[8:11], s3 offen sc1
buffer_load_dwordx4 v[0:3], v4, s[8:11], s3 offen
buffer_load_dwordx4 v[0:3], v4, s[8:11], s3 offen nt
buffer_load_dwordx4 v[0:3], v4, s[8:11], s3 offen sc0 sc1
buffer_load_dwordx4 v[0:3], v4, s[8:11], s3 offen sc1
buffer_load_dwordx4 v4, s[8:11], 0 offen nt lds
buffer_load_dwordx3 off, s[8:11], 0 lds
buffer_load_ushort v0, v1, s[8:11], 0 offen
buffer_store_dword v0, v1, s[8:11], 0 offen
buffer_store_dword v0, v1, s[8:11], 0 offen sc1
buffer_store_dword v0, off, s[8:11], 0 sc0 sc1
buffer_store_dwordx2 v[0:1], v2, s[8:11], 0 offen sc0 sc1
buffer_store_dwordx4 a[0:3], v4, s[8:11], 0 offen sc1
buffer_store_short v0, v1, s[8:11], 0 offen
buffer_atomic_add v0, v1, s[8:11], 0 offen sc0
buffer_wbl2 sc0 sc1
buffer_inv sc1
s_waitcnt lgkmcnt(0)
s_waitcnt vmcnt(0)
s_waitcnt vmcnt(33) lgkmcnt(3)
s_waitcnt vmcnt(63) & expcnt(7) & lgkmcnt(15)
v_add_u32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1
v_add_u32_sdwa v0, sext(v1), s2 dst_sel:BYTE_3 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2 src1_sel:WORD_1
v_add_f32_sdwa v0, -|v1|, |v2| clamp mul:2 dst_sel:WORD_1 dst_unused:UNUSED_SEXT src0_sel:WORD_0 src1_sel:DWORD
v_mul_lo_u16_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:DWORD
v_mul_lo_u16_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD
v_mul_lo_u16_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
v_mul_u32_u24_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:DWORD
v_sub_u16_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
v_cmp_eq_u32_sdwa s[2:3], sext(v1), v2 src0_sel:BYTE_0 src1_sel:WORD_1
v_cmp_lt_f32_sdwa vcc, -v1, v2 src0_sel:WORD_0 src1_sel:WORD_1
v_cndmask_b32_sdwa v0, v1, v2, vcc dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1
v_addc_co_u32_sdwa v1, vcc, v2, v3, vcc dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_1
v_cvt_pk_f32_fp8_sdwa v[0:1], v1 src0_sel:WORD_1
v_cvt_f32_bf16_sdwa v0, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1
v_bitop3_b32 v0, v1, v2, v3 bitop3:0xc8
v_bitop3_b16 v0, v1, v2, v3 bitop3:5 op_sel:[1,0,0,1]
v_cndmask_b32_e64 v0, -v1, |v2|, s[4:5]
v_cvt_scalef32_pk_fp4_bf16 v0, v1, v2
v_cvt_scalef32_pk_fp4_bf16 v0, v1, v2 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_bf16 v0, v1, v2 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_bf16 v0, v1, s2 op_sel:[0,0,1,1]
v_cvt_scalef32_pk_fp4_f32 v0, v1, v2, v3 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_f32 v0, v1, v2, 1.0 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_f32 v0, v1, v2, v3 op_sel:[0,0,1,1]
v_cvt_scalef32_pk_f32_fp4 v[0:1], v1, v2 op_sel:[1,1,0]
v_cvt_pk_fp8_f32 v0, v1, v2 op_sel:[0,0,1]
v_fma_f32 v0, -|v1|, -v2, |v3| clamp div:2
v_fma_f32 v0, neg(-1.0), s2, -4
v_mul_f32_e64 v0, |v1|, s2 mul:4
v_mad_u16 v0, v1, v2, v3 op_sel:[1,0,0,1]
v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[12:15], v[20:23], v24, v25 op_sel_hi:[0,0,0] cbsz:4 blgp:4
v_mfma_scale_f32_16x16x128_f8f6f4 a[0:3], v[4:9], a[12:19], 0, v24, v25 op_sel:[1,0,0] op_sel_hi:[0,1,0] cbsz:2 blgp:1
v_mfma_scale_f32_32x32x64_f8f6f4 v[0:15], v[16:23], v[24:29], v[32:47], v48, v49 op_sel:[1,1,0] op_sel_hi:[1,1,0] blgp:3
v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[12:19], v[20:23] cbsz:4
v_mfma_f32_4x4x4_16b_bf16 v[0:3], v[4:5], a[12:13], 1.0 cbsz:1 abid:2 blgp:3
v_mfma_f32_16x16x32_bf16 a[0:3], v[4:7], a[12:15], a[0:3]
v_accvgpr_write_b32 a4, 1.0
v_accvgpr_read_b32 v4, a8
v_accvgpr_mov_b32 a4, a5
v_mov_b32_dpp v0, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v0, v1 quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf bound_ctrl:0
v_mov_b32_dpp v0, v1 row_shl:4 row_mask:0xf bank_mask:0x5
v_mov_b32_dpp v0, v1 row_shl:8 row_mask:0xf bank_mask:0x3
v_mov_b32_dpp v0, v1 row_shr:4 row_mask:0xf bank_mask:0xa
v_mov_b32_dpp v0, v1 row_shr:8 row_mask:0xf bank_mask:0xc
v_mov_b32_dpp v0, v1 row_ror:1 row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v0, v1 row_mirror row_mask:0x3 bank_mask:0xf
v_mov_b32_dpp v0, v1 row_half_mirror row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v0, v1 row_bcast:15 row_mask:0xa bank_mask:0xf
v_mov_b32_dpp v0, v1 row_bcast:31 row_mask:0xc bank_mask:0xf
v_mov_b32_dpp v0, v1 row_newbcast:3 row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v0, v1 wave_rol:1 row_mask:0xf bank_mask:0xf
v_mov_b64_dpp v[0:1], v[2:3] row_newbcast:15 row_mask:0xf bank_mask:0xf
v_add_f32_dpp v0, -v1, |v2| row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0
v_pk_add_f32 v[0:1], v[2:3], v[4:5] op_sel:[0,1] op_sel_hi:[1,0]
v_pk_add_f32 v[0:1], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,1]
v_pk_add_f32 v[0:1], v[2:3], 1.0 op_sel_hi:[1,0]
v_pk_add_f32 v[0:1], s[2:3], v[4:5] op_sel_hi:[1,0] neg_lo:[1,0] neg_hi:[1,0]
v_pk_lshlrev_b16 v0, 8, v1 op_sel_hi:[0,1]
v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[1,0]
v_pk_mul_f32 v[0:1], v[2:3], v[4:5] op_sel:[1,0]
v_pk_mul_f32 v[0:1], v[2:3], s[4:5] op_sel:[1,0] op_sel_hi:[0,1]
v_pk_mul_f32 v[0:1], v[2:3], v[4:5] op_sel_hi:[0,1]
v_pk_fma_f32 v[0:1], v[2:3], 0.15915494, v[4:5] op_sel:[0,0,1] op_sel_hi:[1,0,1] neg_lo:[1,0,0]
v_pk_mul_lo_u16 v0, v1, v2 op_sel_hi:[1,0]
v_pk_add_f16 v0, v1, 1.0 clamp
v_fma_mix_f32 v0, -v1, |v2|, v3 op_sel:[0,0,1] op_sel_hi:[1,0,1]
s_load_dword s0, s[2:3], -16
s_load_dwordx16 s[16:31], s[2:3], 0x40
s_load_dwordx8 s[16:23], s[2:3], s4
s_load_dwordx4 s[16:19], s[2:3], m0 glc
s_load_dwordx2 s[16:17], s[2:3], s4 offset:0x10
s_load_dword s16, s[2:3], s4 offset:0x0
s_buffer_load_dwordx2 s[16:17], s[4:7], 0x10
s_movk_i32 s0, -1
s_cmpk_gt_u32 s0, 0xffff
s_cmpk_lt_i32 s0, -5
s_getreg_b32 s0, hwreg(HW_REG_XCC_ID, 0, 4)
s_getreg_b32 s0, hwreg(HW_REG_HW_ID)
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 0xf0
s_setreg_b32 hwreg(HW_REG_MODE), s2
s_set_gpr_idx_on s2, gpr_idx(SRC0,DST)
s_mov_b64 s[0:1], 0x12345678
s_mov_b64 vcc, exec
s_mov_b32 flat_scratch_lo, xnack_mask_hi
s_mov_b64 ttmp[0:1], src_shared_base
s_mul_i32 s0, lit(0x3f800000), s1
global_load_dword v0, v1, s[2:3] offset:-16 sc0 sc1 nt
global_load_dwordx4 a[4:7], v[2:3], off offset:4095
global_load_lds_dwordx4 v[2:3], off offset:16
global_store_dwordx4 v2, a[4:7], s[2:3] offset:-4096
global_atomic_add v[2:3], v4, off
global_atomic_cmpswap_x2 v[0:1], v2, v[4:7], s[2:3] sc0 sc1
flat_load_dwordx4 v[0:3], v[4:5] offset:4095
scratch_load_dword v0, off, s4 offset:16
scratch_load_dwordx2 v[0:1], v2, off
scratch_store_dword off, v0, off offset:-16
ds_read2st64_b64 v[0:3], v4 offset0:1 offset1:255
ds_write2_b32 v0, a1, a2 offset1:3
ds_read_b128 a[0:3], v4 offset:65520
ds_swizzle_b32 v0, v1 offset:swizzle(QUAD_PERM,0,1,2,3)
ds_swizzle_b32 v0, v1 offset:swizzle(SWAP,16)
ds_swizzle_b32 v0, v1 offset:swizzle(REVERSE,8)
ds_swizzle_b32 v0, v1 offset:swizzle(BROADCAST,8,3)
ds_swizzle_b32 v0, v1 offset:swizzle(BITMASK_PERM,"01pip")
v_readlane_b32 s0, v1, 3
v_writelane_b32 v0, s1, m0
v_readfirstlane_b32 s0, v1
v_div_scale_f32 v0, vcc, v1, v2, v1
v_mad_u64_u32 v[0:1], s[2:3], v1, v2, 0
v_lshl_add_u64 v[0:1], s[2:3], 3, v[4:5]
v_fmaak_f32 v0, v1, v2, 0x40490fdb
v_fmamk_f32 v0, v1, 0x40490fdb, v2
v_add_f64 v[0:1], v[2:3], 0.15915494309189532
v_add_f16_e32 v0, 0.15915494, v1
v_add_u16_e32 v0, 0x1234, v1
v_cmp_lt_i64_e32 vcc, 0x1234, v[2:3]
v_permlane16_swap_b32_e64 v0, v1 bound_ctrl:1 fi:1
v_permlane32_swap_b32_e32 v0, v1
