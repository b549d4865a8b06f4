//! A case for `kimi-k3-specdec emulate`: memory, what is written there, launches, and what is read back, as JSON.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use specdec_core::config::json::{self, JsonError, Parsed};
use thiserror::Error;

/// Everything of one run. Files are relative to the case's own folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Memory at fixed addresses.
    pub allocs: Vec<Allocation>,
    /// Files that memory starts with.
    #[serde(default)]
    pub writes: Vec<Transfer>,
    /// Launches, all at once; those of one rank one after another.
    pub launches: Vec<CaseLaunch>,
    /// Memory that is written into files at the end.
    #[serde(default)]
    pub readback: Vec<Transfer>,
}

/// Memory of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// Guest address of the first byte.
    pub addr: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Whose memory it is; every rank reaches it.
    #[serde(default)]
    pub rank: u8,
    /// Whether it starts as zeros, else as never written.
    #[serde(default)]
    pub sparse: bool,
}

/// A range of memory and the file that it comes from or goes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Guest address of the first byte.
    pub addr: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// The file.
    pub file: String,
}

/// One launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseLaunch {
    /// The code object's file.
    pub code_object: String,
    /// Kernel symbol.
    pub symbol: String,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Work-items of a workgroup.
    pub block: [u32; 3],
    /// LDS beyond what the kernel declares, in bytes.
    #[serde(default)]
    pub lds_dynamic: u32,
    /// The kernarg segment, or its explicit arguments.
    pub kernarg: Hex,
    /// The device that runs it.
    #[serde(default)]
    pub rank: u8,
}

/// Bytes that stand as hexadecimal digits in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hex(pub Vec<u8>);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self}"))
    }
}

impl std::fmt::Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let pairs = text.as_bytes().chunks_exact(2);
        if !pairs.remainder().is_empty() {
            return Err(serde::de::Error::custom(format!("{} hexadecimal digits are no whole bytes", text.len())));
        }
        let digit = |byte: u8| (byte as char).to_digit(16);
        let byte = |(i, pair): (usize, &[u8])| {
            let value = digit(pair[0]).zip(digit(pair[1])).map(|(high, low)| (high << 4 | low) as u8);
            value.ok_or_else(|| serde::de::Error::custom(format!("byte {i} is not two hexadecimal digits")))
        };
        pairs.enumerate().map(byte).collect::<Result<_, _>>().map(Self)
    }
}

/// Why a text is no case. The message starts with the JSON path.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CaseError {
    /// Not JSON, or not of this form.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A range of no bytes.
    #[error("`{path}.bytes`: is 0")]
    Empty {
        /// JSON path of the entry.
        path: String,
    },
    /// A range past the last address.
    #[error("`{path}`: {bytes} bytes at {addr} end past the last 64-bit address")]
    PastTheEnd {
        /// JSON path of the entry.
        path: String,
        /// First byte.
        addr: u64,
        /// Size.
        bytes: u64,
    },
    /// Two allocations share bytes.
    #[error("`$.allocs[{index}]`: overlaps `$.allocs[{other}]` at {addr}")]
    Overlap {
        /// The later one.
        index: usize,
        /// The earlier one.
        other: usize,
        /// First shared byte.
        addr: u64,
    },
    /// A transfer that no allocation holds.
    #[error("`{path}`: {bytes} bytes at {addr} are not inside one allocation{}", .nearest.as_ref().map_or(String::new(), |nearest| format!(": {nearest}")))]
    Outside {
        /// JSON path of the entry.
        path: String,
        /// First byte.
        addr: u64,
        /// Size.
        bytes: u64,
        /// The allocation that holds the first byte, in words.
        nearest: Option<String>,
    },
    /// No file named.
    #[error("`{path}`: names no file")]
    NoFile {
        /// JSON path of the name.
        path: String,
    },
    /// Two read-backs into one file.
    #[error("`$.readback[{index}].file`: `$.readback[{other}]` goes to `{file}` too")]
    SameFile {
        /// The later one.
        index: usize,
        /// The earlier one.
        other: usize,
        /// The file.
        file: String,
    },
}

impl CaseError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Json(JsonError::Empty) => "pass a JSON object; docs/emulator.md shows one",
            Self::Json(_) => "mend the value at this path; docs/emulator.md says what belongs there",
            Self::Empty { .. } => "give the size in bytes, or leave the entry out",
            Self::PastTheEnd { .. } => "addresses and sizes are decimal integers in bytes; check both",
            Self::Overlap { .. } => "give every allocation addresses of its own",
            Self::Outside { .. } => "check address and size against `allocs`; a range may not span two of them",
            Self::NoFile { .. } => "name a file, relative to the case's folder",
            Self::SameFile { .. } => "give every read-back a file of its own",
        }
    }
}

impl Case {
    /// Parses and checks a case: everything that needs no file.
    pub fn parse(text: &str) -> Result<Parsed<Self>, CaseError> {
        let parsed = json::parse::<Self>(text)?;
        parsed.value.check_allocations()?;
        parsed.value.check_transfers("writes", &parsed.value.writes)?;
        parsed.value.check_transfers("readback", &parsed.value.readback)?;
        parsed.value.check_files()?;
        Ok(parsed)
    }

    fn check_allocations(&self) -> Result<(), CaseError> {
        let mut by_address: Vec<usize> = (0..self.allocs.len()).collect();
        by_address.sort_by_key(|&index| (self.allocs[index].addr, index));
        for (index, allocation) in self.allocs.iter().enumerate() {
            check_range(&format!("$.allocs[{index}]"), allocation.addr, allocation.bytes)?;
        }
        for pair in by_address.windows(2) {
            let (low, high) = (&self.allocs[pair[0]], &self.allocs[pair[1]]);
            if high.addr - low.addr < low.bytes {
                let (index, other) = (pair[0].max(pair[1]), pair[0].min(pair[1]));
                return Err(CaseError::Overlap { index, other, addr: high.addr });
            }
        }
        Ok(())
    }

    fn check_transfers(&self, key: &str, transfers: &[Transfer]) -> Result<(), CaseError> {
        for (index, &Transfer { addr, bytes, ref file }) in transfers.iter().enumerate() {
            let path = format!("$.{key}[{index}]");
            check_range(&path, addr, bytes)?;
            check_file(&format!("{path}.file"), file)?;
            let holder = self.allocs.iter().enumerate().find(|(_, held)| addr.wrapping_sub(held.addr) < held.bytes);
            let fits = holder.is_some_and(|(_, held)| bytes <= held.bytes - (addr - held.addr));
            if !fits {
                let nearest = holder.map(|(index, held)| {
                    format!("`$.allocs[{index}]` ends {} bytes after that address", held.bytes - (addr - held.addr))
                });
                return Err(CaseError::Outside { path, addr, bytes, nearest });
            }
        }
        Ok(())
    }

    fn check_files(&self) -> Result<(), CaseError> {
        for (index, launch) in self.launches.iter().enumerate() {
            check_file(&format!("$.launches[{index}].code_object"), &launch.code_object)?;
        }
        for (index, transfer) in self.readback.iter().enumerate() {
            let file = &transfer.file;
            if let Some(other) = self.readback[..index].iter().position(|earlier| earlier.file == *file) {
                return Err(CaseError::SameFile { index, other, file: file.clone() });
            }
        }
        Ok(())
    }
}

fn check_range(path: &str, addr: u64, bytes: u64) -> Result<(), CaseError> {
    if bytes == 0 {
        return Err(CaseError::Empty { path: path.into() });
    }
    let end = addr.checked_add(bytes);
    end.map(|_| ()).ok_or_else(|| CaseError::PastTheEnd { path: path.into(), addr, bytes })
}

/// A name that the operating system could open.
fn check_file(path: &str, file: &str) -> Result<(), CaseError> {
    if file.is_empty() || file.contains('\0') {
        return Err(CaseError::NoFile { path: path.into() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: &str = r#"{"allocs": [{"addr": 4096, "bytes": 64}, {"addr": 8192, "bytes": 32, "rank": 1, "sparse": true}],
        "writes": [{"addr": 4100, "bytes": 60, "file": "a.bin"}],
        "launches": [{"code_object": "k.co", "symbol": "k", "grid": [1, 2, 3], "block": [64, 1, 1], "kernarg": "00fF"}],
        "readback": [{"addr": 8192, "bytes": 32, "file": "b.bin"}]}"#;

    #[test]
    fn a_case_becomes_values_and_back() {
        let parsed = Case::parse(CASE).unwrap();
        assert!(parsed.warnings.is_empty());
        let case = parsed.value;
        assert_eq!(case.allocs[1], Allocation { addr: 8192, bytes: 32, rank: 1, sparse: true });
        assert_eq!(case.launches[0].kernarg, Hex(vec![0, 0xff]));
        assert_eq!((case.launches[0].lds_dynamic, case.launches[0].grid), (0, [1, 2, 3]));
        assert_eq!(Case::parse(&json::write(&case).unwrap()).unwrap().value, case);
    }

    #[test]
    fn every_refusal_names_its_path() {
        for (old, new, message) in [
            ("\"bytes\": 64}", "\"bytes\": 0}", "`$.allocs[0].bytes`: is 0"),
            ("\"bytes\": 64}", "\"bytes\": 64, \"bytes\": 64}", "`$.allocs[0]`: duplicate field `bytes`"),
            ("\"addr\": 4096", "\"addr\": -1", "`$.allocs[0].addr`: invalid value"),
            ("\"addr\": 4096", "\"addr\": 18446744073709551615", "`$.allocs[0]`: 64 bytes at 18446744073709551615 end"),
            ("\"addr\": 4096", "\"addr\": 8130", "`$.allocs[1]`: overlaps `$.allocs[0]` at 8192"),
            ("\"addr\": 4096", "\"addr\": 8192", "`$.allocs[1]`: overlaps `$.allocs[0]` at 8192"),
            (
                "\"addr\": 4100",
                "\"addr\": 4101",
                "`$.writes[0]`: 60 bytes at 4101 are not inside one allocation: `$.allocs[0]` ends 59",
            ),
            ("\"addr\": 4100", "\"addr\": 16", "`$.writes[0]`: 60 bytes at 16 are not inside one allocation"),
            ("\"b.bin\"", "\"\"", "`$.readback[0].file`: names no file"),
            ("\"k.co\"", "\"\\u0000\"", "`$.launches[0].code_object`: names no file"),
            ("00fF", "00f", "`$.launches[0].kernarg`: 3 hexadecimal digits are no whole bytes"),
            ("00fF", "0x00", "`$.launches[0].kernarg`: byte 0 is not two hexadecimal digits"),
            ("00fF", "é", "`$.launches[0].kernarg`: byte 0 is not two hexadecimal digits"),
            ("[1, 2, 3]", "[1, 2]", "`$.launches[0].grid`: invalid length 2"),
            ("[1, 2, 3]", "[1, 2, 4294967296]", "`$.launches[0].grid[2]`: invalid value"),
            ("\"rank\": 1", "\"rank\": 256", "`$.allocs[1].rank`: invalid value"),
        ] {
            let text = CASE.replacen(old, new, 1);
            let error = Case::parse(&text).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
            assert!(!error.hint().is_empty());
        }
        let entry = r#"{"addr": 8192, "bytes": 32, "file": "b.bin"}"#;
        let error = Case::parse(&CASE.replace(entry, &format!("{entry}, {entry}"))).unwrap_err();
        assert_eq!(error.to_string(), "`$.readback[1].file`: `$.readback[0]` goes to `b.bin` too");
    }
}
