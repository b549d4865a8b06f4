//! What one device can hold at once, and whether a launch fits.

use super::code_object::Kernel;
use super::error::EmulatorError;
use crate::wave::LANES;

/// Resources of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    /// Compute units.
    pub compute_units: u32,
    /// LDS of a compute unit in bytes.
    pub lds_bytes: u32,
    /// LDS is granted in multiples of this many bytes.
    pub lds_granule_bytes: u32,
    /// SIMDs of a compute unit.
    pub simds: u32,
    /// Waves that one SIMD holds.
    pub waves_per_simd: u32,
    /// Vector registers, architectural and accumulation, that one SIMD lane has for its waves.
    pub vector_registers: u32,
    /// Vector registers are granted in multiples of this many.
    pub vector_register_granule: u32,
    /// Work-items of a workgroup at most.
    pub max_block: u32,
}

impl Default for DeviceModel {
    /// An MI355X.
    fn default() -> Self {
        Self {
            compute_units: 256,
            lds_bytes: 160 << 10,
            lds_granule_bytes: 1280,
            simds: 4,
            waves_per_simd: 8,
            vector_registers: 512,
            vector_register_granule: 8,
            max_block: 1024,
        }
    }
}

/// Grid and block of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_lds_bytes: u32,
}

impl Shape {
    /// Work-items of a workgroup.
    pub fn block_items(&self) -> u32 {
        self.block.iter().product()
    }

    /// Waves of a workgroup.
    pub fn waves(&self) -> u32 {
        self.block_items().div_ceil(LANES as u32)
    }

    /// Workgroups.
    pub fn workgroups(&self) -> u32 {
        self.grid.iter().product()
    }
}

impl DeviceModel {
    /// Checks that a launch is possible and that all of its workgroups are resident at once.
    pub(super) fn check(&self, kernel: &Kernel, shape: &Shape) -> Result<(), EmulatorError> {
        let symbol = kernel.info.symbol.clone();
        let product = |sizes: [u32; 3]| {
            sizes.iter().try_fold(1u32, |product, &size| product.checked_mul(size)).unwrap_or(u32::MAX)
        };
        let (items, workgroups) = (product(shape.block), product(shape.grid));
        let limit = if kernel.info.max_block == 0 { self.max_block } else { self.max_block.min(kernel.info.max_block) };
        let reason = if items == 0 || workgroups == 0 {
            Some("it is empty".into())
        } else if items > limit {
            Some(format!("a workgroup of this kernel has at most {limit} work-items"))
        } else {
            None
        };
        if let Some(reason) = reason {
            return Err(EmulatorError::BadShape { symbol, grid: shape.grid, block: shape.block, reason });
        }
        let lds_bytes = kernel.info.lds_bytes.saturating_add(shape.dynamic_lds_bytes);
        let vgprs = kernel.descriptor.vector_registers.next_multiple_of(self.vector_register_granule);
        let waves = shape.waves();
        let waves_per_unit = self.simds * self.waves_per_simd.min(self.vector_registers / vgprs);
        let by_lds =
            self.lds_bytes.checked_div(lds_bytes.checked_next_multiple_of(self.lds_granule_bytes).unwrap_or(u32::MAX));
        let per_compute_unit = by_lds.unwrap_or(u32::MAX).min(waves_per_unit / waves);
        let fits = per_compute_unit.saturating_mul(self.compute_units);
        if workgroups > fits {
            let compute_units = self.compute_units;
            return Err(EmulatorError::TooManyWorkgroups {
                symbol,
                workgroups,
                fits,
                per_compute_unit,
                compute_units,
                lds_bytes,
                vgprs,
                waves,
            });
        }
        Ok(())
    }
}
