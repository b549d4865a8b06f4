//! The kernel driver's description of a GPU, and the names that come from it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::facts::Gpu;

/// A text that is not what its place wants.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopologyError {
    /// No instruction set.
    #[error("unknown instruction set `{0}`, expected one like `gfx950`")]
    Gfx(String),
    /// No PCI address.
    #[error("unknown PCI address `{0}`, expected one like `0000:75:00.0`")]
    Pci(String),
    /// A property that every GPU has is missing or no number.
    #[error("the property `{0}` is missing or no number")]
    Property(&'static str),
}

/// An instruction set by LLVM's name, such as `gfx950`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Gfx(String);

impl Gfx {
    /// From the kernel driver's number: ten thousands major, hundreds minor, the rest stepping. LLVM writes the last two
    /// as one hexadecimal digit each.
    pub fn from_target_version(number: u64) -> Self {
        Self(format!("gfx{}{:x}{:x}", number / 10_000, number / 100 % 100, number % 100))
    }
}

impl FromStr for Gfx {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, TopologyError> {
        let digits = text.strip_prefix("gfx").unwrap_or_default();
        let known = (3..=5).contains(&digits.len()) && digits.chars().all(|c| c.is_ascii_hexdigit());
        if known {
            Ok(Self(text.into()))
        } else {
            Err(TopologyError::Gfx(text.into()))
        }
    }
}

impl TryFrom<String> for Gfx {
    type Error = TopologyError;

    fn try_from(text: String) -> Result<Self, TopologyError> {
        text.parse()
    }
}

impl From<Gfx> for String {
    fn from(gfx: Gfx) -> Self {
        gfx.0
    }
}

impl fmt::Display for Gfx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A place on the PCI buses: `domain:bus:device.function`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// From the kernel driver's two numbers. The location's low half is the address; partitions of a GPU differ above it.
    pub const fn from_location(domain: u32, location: u64) -> Self {
        let function = location as u8 & 0x7;
        Self { domain, bus: (location >> 8) as u8, device: (location >> 3) as u8 & 0x1f, function }
    }

    /// The GPU that sits there: HIP numbers a GPU's partitions as functions of one device.
    #[must_use]
    pub const fn physical(self) -> Self {
        Self { function: 0, ..self }
    }
}

impl FromStr for PciAddress {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, TopologyError> {
        let error = || TopologyError::Pci(text.into());
        let (rest, function) = text.rsplit_once('.').ok_or_else(error)?;
        let parts: Vec<&str> = rest.split(':').collect();
        let [domain, bus, device] = parts[..] else { return Err(error()) };
        let number = |digits: &str| u32::from_str_radix(digits, 16).map_err(|_| error());
        let byte =
            |digits: &str, limit: u32| number(digits).and_then(|n| if n < limit { Ok(n as u8) } else { Err(error()) });
        let (bus, device, function) = (byte(bus, 0x100)?, byte(device, 0x20)?, byte(function, 8)?);
        Ok(Self { domain: number(domain)?, bus, device, function })
    }
}

impl TryFrom<String> for PciAddress {
    type Error = TopologyError;

    fn try_from(text: String) -> Result<Self, TopologyError> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.device, self.function)
    }
}

/// The GPU that a node's `properties` describe, `None` where the node is a CPU.
pub fn gpu_of_node(properties: &str) -> Result<Option<Gpu>, TopologyError> {
    let find = |name: &'static str| {
        let mut pairs = properties.lines().filter_map(|line| line.split_once(' '));
        let value = pairs.find(|(key, _)| *key == name).map(|(_, value)| value.trim().parse::<u64>());
        value.and_then(Result::ok).ok_or(TopologyError::Property(name))
    };
    let simds = find("simd_count")?;
    if simds == 0 {
        return Ok(None);
    }
    let per_unit = find("simd_per_cu")?;
    let compute_units = simds.checked_div(per_unit).and_then(|units| u32::try_from(units).ok());
    let domain = u32::try_from(find("domain")?).map_err(|_| TopologyError::Property("domain"))?;
    Ok(Some(Gpu {
        gfx: Gfx::from_target_version(find("gfx_target_version")?),
        compute_units: compute_units.ok_or(TopologyError::Property("simd_per_cu"))?,
        pci: PciAddress::from_location(domain, find("location_id")?),
        compute_partition: None,
        memory_partition: None,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NODE: &str = "cpu_cores_count 0\nsimd_count 1024\nsimd_per_cu 4\ngfx_target_version 90500\n\
                        location_id 29952\ndomain 0\n";

    #[test]
    fn a_gpu_node_is_read() {
        let gpu = gpu_of_node(NODE).unwrap().unwrap();
        assert_eq!((gpu.gfx.to_string(), gpu.compute_units), ("gfx950".into(), 256));
        assert_eq!(gpu.pci.to_string(), "0000:75:00.0");
    }

    #[test]
    fn a_cpu_node_is_none_and_a_broken_one_an_error() {
        assert_eq!(gpu_of_node("cpu_cores_count 96\nsimd_count 0\n"), Ok(None));
        assert_eq!(gpu_of_node(""), Err(TopologyError::Property("simd_count")));
        for name in ["simd_per_cu", "gfx_target_version", "location_id", "domain"] {
            let broken = NODE.replace(name, "other");
            assert_eq!(gpu_of_node(&broken), Err(TopologyError::Property(name)));
        }
        assert_eq!(
            gpu_of_node(&NODE.replace("simd_per_cu 4", "simd_per_cu 0")),
            Err(TopologyError::Property("simd_per_cu"))
        );
    }

    #[test]
    fn names_are_those_of_the_compilers() {
        for (number, name) in [(90_500, "gfx950"), (90_402, "gfx942"), (90_010, "gfx90a"), (120_001, "gfx1201")] {
            assert_eq!(Gfx::from_target_version(number).to_string(), name);
            assert_eq!(name.parse(), Ok(Gfx::from_target_version(number)));
        }
        assert!("sm_90".parse::<Gfx>().is_err());
    }

    #[test]
    fn partitions_of_a_gpu_share_its_address() {
        let whole = PciAddress::from_location(0, 0x7500);
        assert_eq!(PciAddress::from_location(0, 0x3000_7500).physical(), whole);
        assert_eq!("0000:75:00.3".parse::<PciAddress>().unwrap().physical(), whole);
        assert_ne!(PciAddress::from_location(1, 0x7500).physical(), whole);
    }

    #[test]
    fn other_texts_are_no_addresses() {
        for text in ["", "75:00.0", "0000:75:00", "0000:175:00.0", "0000:75:20.0", "0000:75:00.8", "0000:zz:00.0"] {
            assert_eq!(text.parse::<PciAddress>(), Err(TopologyError::Pci(text.into())));
        }
    }

    proptest! {
        #[test]
        fn an_address_and_its_text_are_one(domain in any::<u32>(), location in 0_u64..0x1_0000) {
            let address = PciAddress::from_location(domain, location);
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }
    }
}
