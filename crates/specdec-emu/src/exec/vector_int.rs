//! Integer lane arithmetic, shifts and bit fields.

use crate::exec::lane_op::lane_table;

const fn low24(x: u32) -> u32 {
    x & 0x00ff_ffff
}

const fn signed24(x: u32) -> i32 {
    (x << 8) as i32 >> 8
}

#[inline(always)]
fn field(x: u32, offset: u32, width: u32) -> u32 {
    (x >> (offset & 31)) & !(!0u32).checked_shl(width & 31).unwrap_or(0)
}

#[inline(always)]
fn signed_field(x: u32, offset: u32, width: u32) -> i32 {
    let (offset, width) = (offset & 31, width & 31);
    if width == 0 {
        return 0;
    }
    if offset + width >= 32 {
        return x as i32 >> offset;
    }
    (x << (32 - offset - width)) as i32 >> (32 - width)
}

/// Index of the first set bit from the top, all ones if there is none.
const fn first_high(x: u32) -> u32 {
    if x == 0 {
        !0
    } else {
        x.leading_zeros()
    }
}

/// Index from the top of the first bit that differs from the sign, all ones if none does.
pub(super) const fn first_high_signed(x: i32) -> u32 {
    first_high((x ^ (x >> 31)) as u32)
}

#[inline(always)]
fn median<T: Ord + Copy>(a: T, b: T, c: T) -> T {
    a.max(b).min(a.min(b).max(c))
}

/// Byte `selector` of the eight bytes `high:low`, a sign of one of its words, or a constant byte.
#[inline(always)]
fn permuted_byte(high: u32, low: u32, selector: u32) -> u32 {
    let both = u64::from(high) << 32 | u64::from(low);
    match selector & 0xff {
        selector @ 0..=7 => (both >> (8 * selector)) as u32 & 0xff,
        selector @ 8..=11 => ((both >> (16 * (selector - 8) + 15)) as u32 & 1) * 0xff,
        12 => 0,
        _ => 0xff,
    }
}

#[inline(always)]
fn permuted(high: u32, low: u32, selectors: u32) -> u32 {
    (0..4).fold(0, |out, byte| out | permuted_byte(high, low, selectors >> (8 * byte)) << (8 * byte))
}

/// Sum of the absolute differences of the four bytes.
#[inline(always)]
fn byte_differences(a: u32, b: u32) -> u32 {
    (0..4).map(|byte| (a >> (8 * byte) & 0xff).abs_diff(b >> (8 * byte) & 0xff)).sum()
}

#[inline(always)]
fn high_product(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

/// Limited to what an unsigned byte holds.
#[inline(always)]
fn unsigned_byte(x: i32) -> u32 {
    x.clamp(0, 255) as u32
}

lane_table! {
    VMovB32(a: u32) -> u32 { a }
    VAccvgprReadB32(a: u32) -> u32 { a }
    VAccvgprWriteB32(a: u32) -> u32 { a }
    VAccvgprMovB32(a: u32) -> u32 { a }
    VNotB32(a: u32) -> u32 { !a }
    VBfrevB32(a: u32) -> u32 { a.reverse_bits() }
    VFfbhU32(a: u32) -> u32 { first_high(a) }
    VFfbhI32(a: i32) -> u32 { first_high_signed(a) }
    VFfblB32(a: u32) -> u32 { if a == 0 { !0 } else { a.trailing_zeros() } }
    VPrngB32(a: u32) -> u32 { a << 1 ^ if a >> 31 == 1 { 197 } else { 0 } }
    VAndB32(a: u32, b: u32) -> u32 { a & b }
    VOrB32(a: u32, b: u32) -> u32 { a | b }
    VXorB32(a: u32, b: u32) -> u32 { a ^ b }
    VXnorB32(a: u32, b: u32) -> u32 { !(a ^ b) }
    VAndOrB32(a: u32, b: u32, c: u32) -> u32 { a & b | c }
    VOr3B32(a: u32, b: u32, c: u32) -> u32 { a | b | c }
    VAddU32(a: u32, b: u32) -> u32 { a.wrapping_add(b) } => { a.saturating_add(b) }
    VSubU32(a: u32, b: u32) -> u32 { a.wrapping_sub(b) } => { a.saturating_sub(b) }
    VSubrevU32(a: u32, b: u32) -> u32 { b.wrapping_sub(a) } => { b.saturating_sub(a) }
    VAddI32(a: i32, b: i32) -> i32 { a.wrapping_add(b) } => { a.saturating_add(b) }
    VSubI32(a: i32, b: i32) -> i32 { a.wrapping_sub(b) } => { a.saturating_sub(b) }
    VAdd3U32(a: u32, b: u32, c: u32) -> u32 { a.wrapping_add(b).wrapping_add(c) }
    VAddLshlU32(a: u32, b: u32, c: u32) -> u32 { a.wrapping_add(b) << (c & 31) }
    VLshlAddU32(a: u32, b: u32, c: u32) -> u32 { (a << (b & 31)).wrapping_add(c) }
    VLshlOrB32(a: u32, b: u32, c: u32) -> u32 { a << (b & 31) | c }
    VXadU32(a: u32, b: u32, c: u32) -> u32 { (a ^ b).wrapping_add(c) }
    VLshlrevB32(a: u32, b: u32) -> u32 { b << (a & 31) }
    VLshrrevB32(a: u32, b: u32) -> u32 { b >> (a & 31) }
    VAshrrevI32(a: u32, b: i32) -> i32 { b >> (a & 31) }
    VMinU32(a: u32, b: u32) -> u32 { a.min(b) }
    VMaxU32(a: u32, b: u32) -> u32 { a.max(b) }
    VMinI32(a: i32, b: i32) -> i32 { a.min(b) }
    VMaxI32(a: i32, b: i32) -> i32 { a.max(b) }
    VMin3U32(a: u32, b: u32, c: u32) -> u32 { a.min(b).min(c) }
    VMax3U32(a: u32, b: u32, c: u32) -> u32 { a.max(b).max(c) }
    VMin3I32(a: i32, b: i32, c: i32) -> i32 { a.min(b).min(c) }
    VMax3I32(a: i32, b: i32, c: i32) -> i32 { a.max(b).max(c) }
    VMed3U32(a: u32, b: u32, c: u32) -> u32 { median(a, b, c) }
    VMed3I32(a: i32, b: i32, c: i32) -> i32 { median(a, b, c) }
    VMulLoU32(a: u32, b: u32) -> u32 { a.wrapping_mul(b) }
    VMulHiU32(a: u32, b: u32) -> u32 { high_product(a, b) }
    VMulHiI32(a: i32, b: i32) -> i32 { ((i64::from(a) * i64::from(b)) >> 32) as i32 }
    VMulU32U24(a: u32, b: u32) -> u32 { low24(a).wrapping_mul(low24(b)) }
    VMulHiU32U24(a: u32, b: u32) -> u32 { high_product(low24(a), low24(b)) }
    VMulHiI32I24(a: u32, b: u32) -> i32 { ((i64::from(signed24(a)) * i64::from(signed24(b))) >> 32) as i32 }
    VMulI32I24(a: u32, b: u32) -> i32 { signed24(a).wrapping_mul(signed24(b)) }
    VMadU32U24(a: u32, b: u32, c: u32) -> u32 { low24(a).wrapping_mul(low24(b)).wrapping_add(c) }
        => { (u64::from(low24(a)) * u64::from(low24(b)) + u64::from(c)).min(u64::from(u32::MAX)) as u32 }
    VMadI32I24(a: u32, b: u32, c: i32) -> i32 { signed24(a).wrapping_mul(signed24(b)).wrapping_add(c) }
        => {
            (i64::from(signed24(a)) * i64::from(signed24(b)) + i64::from(c))
                .clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
        }
    VMadU32U16(a: u16, b: u16, c: u32) -> u32 { (u32::from(a) * u32::from(b)).wrapping_add(c) }
        => { (u32::from(a) * u32::from(b)).saturating_add(c) }
    VMadI32I16(a: i16, b: i16, c: i32) -> i32 { (i32::from(a) * i32::from(b)).wrapping_add(c) }
        => { (i32::from(a) * i32::from(b)).saturating_add(c) }
    VBfeU32(a: u32, b: u32, c: u32) -> u32 { field(a, b, c) }
    VBfeI32(a: u32, b: u32, c: u32) -> i32 { signed_field(a, b, c) }
    VBfiB32(a: u32, b: u32, c: u32) -> u32 { a & b | !a & c }
    VBfmB32(a: u32, b: u32) -> u32 { ((1 << (a & 31)) - 1) << (b & 31) }
    VAlignbitB32(a: u32, b: u32, c: u32) -> u32 { ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32 }
    VAlignbyteB32(a: u32, b: u32, c: u32) -> u32 { ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c & 3))) as u32 }
    VBcntU32B32(a: u32, b: u32) -> u32 { a.count_ones().wrapping_add(b) }
    VPermB32(a: u32, b: u32, c: u32) -> u32 { permuted(a, b, c) }
    VSadU8(a: u32, b: u32, c: u32) -> u32 { byte_differences(a, b).wrapping_add(c) }
    VSadHiU8(a: u32, b: u32, c: u32) -> u32 { (byte_differences(a, b) << 16).wrapping_add(c) }
    VSadU16(a: u32, b: u32, c: u32) -> u32 {
        (a & 0xffff).abs_diff(b & 0xffff).wrapping_add((a >> 16).abs_diff(b >> 16)).wrapping_add(c)
    }
    VSadU32(a: u32, b: u32, c: u32) -> u32 { a.abs_diff(b).wrapping_add(c) }
        => { a.abs_diff(b).saturating_add(c) }
    VAddU16(a: u16, b: u16) -> u16 { a.wrapping_add(b) } => { a.saturating_add(b) }
    VSubU16(a: u16, b: u16) -> u16 { a.wrapping_sub(b) } => { a.saturating_sub(b) }
    VMulLoU16(a: u16, b: u16) -> u16 { a.wrapping_mul(b) }
    VSubrevU16(a: u16, b: u16) -> u16 { b.wrapping_sub(a) } => { b.saturating_sub(a) }
    VAddI16(a: i16, b: i16) -> i16 = keeps { a.wrapping_add(b) } => { a.saturating_add(b) }
    VSubI16(a: i16, b: i16) -> i16 = keeps { a.wrapping_sub(b) } => { a.saturating_sub(b) }
    VMinI16(a: i16, b: i16) -> i16 { a.min(b) }
    VMin3I16(a: i16, b: i16, c: i16) -> i16 = keeps { a.min(b).min(c) }
    VMax3I16(a: i16, b: i16, c: i16) -> i16 = keeps { a.max(b).max(c) }
    VMed3I16(a: i16, b: i16, c: i16) -> i16 = keeps { median(a, b, c) }
    VMin3U16(a: u16, b: u16, c: u16) -> u16 = keeps { a.min(b).min(c) }
    VMax3U16(a: u16, b: u16, c: u16) -> u16 = keeps { a.max(b).max(c) }
    VMed3U16(a: u16, b: u16, c: u16) -> u16 = keeps { median(a, b, c) }
    VMinU16(a: u16, b: u16) -> u16 { a.min(b) }
    VMaxU16(a: u16, b: u16) -> u16 { a.max(b) }
    VMaxI16(a: i16, b: i16) -> i16 { a.max(b) }
    VLshlrevB16(a: u16, b: u16) -> u16 { b << (a & 15) }
    VLshrrevB16(a: u16, b: u16) -> u16 { b >> (a & 15) }
    VAshrrevI16(a: u16, b: i16) -> i16 { b >> (a & 15) }
    VMadU16(a: u16, b: u16, c: u16) -> u16 = keeps { a.wrapping_mul(b).wrapping_add(c) }
        => { (u32::from(a) * u32::from(b) + u32::from(c)).min(u32::from(u16::MAX)) as u16 }
    VMadI16(a: i16, b: i16, c: i16) -> i16 = keeps { a.wrapping_mul(b).wrapping_add(c) }
        => {
            (i32::from(a) * i32::from(b) + i32::from(c)).clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
        }
    VMadLegacyU16(a: u16, b: u16, c: u16) -> u16 { a.wrapping_mul(b).wrapping_add(c) }
        => { (u32::from(a) * u32::from(b) + u32::from(c)).min(u32::from(u16::MAX)) as u16 }
    VMadLegacyI16(a: i16, b: i16, c: i16) -> i16 { a.wrapping_mul(b).wrapping_add(c) }
        => {
            (i32::from(a) * i32::from(b) + i32::from(c)).clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
        }
    VAshrPkU8I32(a: i32, b: i32, c: u32) -> u16 = keeps {
        (unsigned_byte(a >> (c & 31)) | unsigned_byte(b >> (c & 31)) << 8) as u16
    }
    VAshrPkI8I32(a: i32, b: i32, c: u32) -> u16 = keeps {
        let narrow = |x: i32| u32::from((x >> (c & 31)).clamp(-128, 127) as u8);
        (narrow(a) | narrow(b) << 8) as u16
    }
    VSatPkU8I16(a: u32) -> u32 { unsigned_byte(i32::from(a as i16)) | unsigned_byte(a as i32 >> 16) << 8 }
    VPackB32F16(a: u16, b: u16) -> u32 { u32::from(a) | u32::from(b) << 16 }
}
