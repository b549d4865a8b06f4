//! Code objects on one device.

use std::collections::HashMap;
use std::ffi::CString;

use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{Endianness, Object, ObjectSection};

use crate::library::Hip;
use crate::result::{module, Handle};
use crate::shared::{Kind, Owned};
use crate::HipError;

/// A kernel of a [`Module`].
#[derive(Clone, Copy, Debug)]
pub struct Kernel(pub(crate) Handle);

/// A code object on one device, and the kernels of it that were asked for.
#[derive(Debug)]
pub struct Module {
    owned: Owned,
    kernels: HashMap<String, Kernel>,
}

impl Module {
    /// Loads a code object on a device.
    pub fn load(hip: &Hip, device: u32, code_object: &[u8]) -> Result<Self, HipError> {
        check_whole(code_object)?;
        let _scope = hip.shared.enter(device)?;
        let module = module::load(&hip.shared.functions, code_object)?;
        Ok(Self { owned: Owned::new(&hip.shared, Kind::Module, module), kernels: HashMap::new() })
    }

    /// A kernel by its symbol, without the descriptor's `.kd`; looked up once.
    pub fn kernel(&mut self, symbol: &str) -> Result<Kernel, HipError> {
        if let Some(kernel) = self.kernels.get(symbol) {
            return Ok(*kernel);
        }
        let name = CString::new(symbol).map_err(|_| HipError::BadSymbol { symbol: symbol.into() })?;
        let found = module::function(self.owned.functions(), self.owned.handle(), &name);
        let kernel = found.map(Kernel).map_err(|error| error.about(|| format!("`{symbol}`")))?;
        self.kernels.insert(symbol.into(), kernel);
        Ok(kernel)
    }

    /// Gives it back, once none of its kernels runs, and says how that went.
    pub fn release(self) -> Result<(), HipError> {
        self.owned.release()
    }
}

/// HIP is not told how long a code object is: it believes the headers. So everything that they name must be there.
fn check_whole(code_object: &[u8]) -> Result<(), HipError> {
    let bad = |reason: String| HipError::BadCodeObject { reason };
    let file = ElfFile::<FileHeader64<Endianness>>::parse(code_object).map_err(|error| bad(error.to_string()))?;
    for section in file.sections() {
        section.data().map_err(|error| bad(error.to_string()))?;
    }
    for segment in object::Object::segments(&file) {
        object::ObjectSegment::data(&segment).map_err(|error| bad(error.to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_object_that_was_cut_is_refused_before_hip_sees_it() {
        // Any shared object will do: the test's own executable.
        let whole = std::fs::read(std::env::current_exe().expect("a path")).expect("a file");
        check_whole(&whole).expect("it is whole");
        for bytes in [0, 3, 63, 64, whole.len() / 2, whole.len() - 1] {
            assert!(matches!(check_whole(&whole[..bytes]), Err(HipError::BadCodeObject { .. })), "{bytes}");
        }
        assert!(check_whole(b"__CLANG_OFFLOAD_BUNDLE__").is_err());
    }
}
