//! Read-modify-write operations, the same for global memory and LDS.

use half::{bf16, f16};

/// What an atomic does with the old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtomicOp {
    Swap,
    CompareSwap,
    Add,
    Sub,
    SignedMin,
    UnsignedMin,
    SignedMax,
    UnsignedMax,
    And,
    Or,
    Xor,
    Inc,
    Dec,
    AddFloat,
    MinFloat,
    MaxFloat,
    CompareSwapFloat,
    /// Both halves of a dword.
    AddF16Pair,
    AddBf16Pair,
}

/// A sum whose NaN does not depend on the host's.
fn float_sum(a: f32, b: f32) -> f32 {
    let sum = a + b;
    if sum.is_nan() {
        f32::NAN
    } else {
        sum
    }
}

/// The sum of each half of two dwords.
fn pair_sum(a: u64, b: u64, add: impl Fn(u16, u16) -> u16) -> u64 {
    let half = |shift: u32| u64::from(add((a >> shift) as u16, (b >> shift) as u16)) << shift;
    half(0) | half(16)
}

impl AtomicOp {
    /// The new value of `bytes` (4 or 8) from the old one; `compare` matters to compare-and-swap only.
    pub fn apply(self, old: u64, data: u64, compare: u64, bytes: u8) -> u64 {
        let is_wide = bytes == 8;
        let signed = |value: u64| if is_wide { value as i64 } else { value as u32 as i32 as i64 };
        let new = match self {
            Self::Swap => data,
            Self::CompareSwap => return if old == compare { data } else { old },
            Self::Add => old.wrapping_add(data),
            Self::Sub => old.wrapping_sub(data),
            Self::SignedMin => signed(old).min(signed(data)) as u64,
            Self::UnsignedMin => old.min(data),
            Self::SignedMax => signed(old).max(signed(data)) as u64,
            Self::UnsignedMax => old.max(data),
            Self::And => old & data,
            Self::Or => old | data,
            Self::Xor => old ^ data,
            Self::Inc => {
                if old >= data {
                    0
                } else {
                    old + 1
                }
            }
            Self::Dec => {
                if old == 0 || old > data {
                    data
                } else {
                    old - 1
                }
            }
            Self::AddFloat if is_wide => {
                let sum = f64::from_bits(old) + f64::from_bits(data);
                if sum.is_nan() { f64::NAN } else { sum }.to_bits()
            }
            Self::AddFloat => float_sum(f32::from_bits(old as u32), f32::from_bits(data as u32)).to_bits() as u64,
            Self::MinFloat if f32::from_bits(data as u32) < f32::from_bits(old as u32) => data,
            Self::MaxFloat if f32::from_bits(data as u32) > f32::from_bits(old as u32) => data,
            Self::CompareSwapFloat if f32::from_bits(old as u32) == f32::from_bits(compare as u32) => data,
            Self::MinFloat | Self::MaxFloat | Self::CompareSwapFloat => old,
            Self::AddF16Pair => pair_sum(old, data, |a, b| {
                let [a, b] = [a, b].map(|half| f16::from_bits(half).to_f32());
                f16::from_f32(float_sum(a, b)).to_bits()
            }),
            Self::AddBf16Pair => pair_sum(old, data, |a, b| {
                let [a, b] = [a, b].map(|half| bf16::from_bits(half).to_f32());
                bf16::from_f32(float_sum(a, b)).to_bits()
            }),
        };
        if is_wide {
            new
        } else {
            new as u32 as u64
        }
    }

    /// The operation of a global or buffer atomic, by the mnemonic's tail (`add`, `smax`, `cmpswap`, ...).
    pub fn global(tail: &str) -> Option<(Self, u8)> {
        let (base, bytes) = tail.strip_suffix("_x2").map_or((tail, 4), |base| (base, 8));
        let op = match base {
            "swap" => Self::Swap,
            "cmpswap" => Self::CompareSwap,
            "add" => Self::Add,
            "sub" => Self::Sub,
            "smin" => Self::SignedMin,
            "umin" => Self::UnsignedMin,
            "smax" => Self::SignedMax,
            "umax" => Self::UnsignedMax,
            "and" => Self::And,
            "or" => Self::Or,
            "xor" => Self::Xor,
            "inc" => Self::Inc,
            "dec" => Self::Dec,
            "add_f32" => Self::AddFloat,
            "pk_add_f16" => Self::AddF16Pair,
            "pk_add_bf16" => Self::AddBf16Pair,
            "add_f64" => return Some((Self::AddFloat, 8)),
            _ => return None,
        };
        Some((op, bytes))
    }

    /// The operation of an LDS atomic, by the mnemonic's tail (`add_u32`, `cmpst_rtn_b32`, ...), its bytes and
    /// whether it returns the old value.
    pub fn local(tail: &str) -> Option<(Self, u8, bool)> {
        let (base, kind) = tail.rsplit_once('_')?;
        let (base, is_returning) = base.strip_suffix("_rtn").map_or((base, false), |base| (base, true));
        let (class, bytes) = (kind.as_bytes().first()?, if kind.ends_with("64") { 8 } else { 4 });
        let op = match (base, class) {
            ("pk_add", b'f') => Self::AddF16Pair,
            ("pk_add", b'b') => Self::AddBf16Pair,
            ("min", b'f') => Self::MinFloat,
            ("max", b'f') => Self::MaxFloat,
            ("cmpst", b'f') => Self::CompareSwapFloat,
            ("add", b'f') => Self::AddFloat,
            ("add", _) => Self::Add,
            ("sub", _) => Self::Sub,
            ("inc", _) => Self::Inc,
            ("dec", _) => Self::Dec,
            ("min", b'i') => Self::SignedMin,
            ("min", b'u') => Self::UnsignedMin,
            ("max", b'i') => Self::SignedMax,
            ("max", b'u') => Self::UnsignedMax,
            ("and", _) => Self::And,
            ("or", _) => Self::Or,
            ("xor", _) => Self::Xor,
            ("cmpst", b'b') => Self::CompareSwap,
            ("wrxchg", _) => Self::Swap,
            _ => return None,
        };
        Some((op, bytes, is_returning))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_operations_wrap_and_compare_at_32_bits() {
        assert_eq!(AtomicOp::Add.apply(u32::MAX as u64, 1, 0, 4), 0);
        assert_eq!(AtomicOp::SignedMax.apply(u32::MAX as u64, 1, 0, 4), 1);
        assert_eq!(AtomicOp::UnsignedMax.apply(u32::MAX as u64, 1, 0, 4), u32::MAX as u64);
        assert_eq!(AtomicOp::CompareSwap.apply(5, 9, 5, 8), 9);
        assert_eq!(AtomicOp::Dec.apply(0, 7, 0, 4), 7);
        assert_eq!(AtomicOp::local("cmpst_rtn_b32"), Some((AtomicOp::CompareSwap, 4, true)));
        assert_eq!(AtomicOp::global("umax_x2"), Some((AtomicOp::UnsignedMax, 8)));
    }
}
