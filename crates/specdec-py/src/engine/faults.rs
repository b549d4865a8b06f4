//! Faults that tests inject into an engine on the emulator.

use pyo3::prelude::*;
use specdec_core::ids::Rank;
use specdec_emu::machine::{Fault, StoreFault, StorePlace};
use specdec_emu::op::Op;

use super::inspection::region;
use super::PyEngine;
use crate::error;

fn mnemonic(name: &str) -> PyResult<Op> {
    let found = Op::ALL.iter().copied().find(|known| known.name() == name);
    found.ok_or_else(|| error::unknown("instruction", name, "the emulator's mnemonics, without a suffix"))
}

#[pymethods]
impl PyEngine {
    /// Makes the `occurrence`-th execution of `op` on `rank` do nothing. Returns the fault's number.
    fn skip_instruction(&self, rank: u8, op: &str, occurrence: u64) -> PyResult<usize> {
        self.inject(Fault::SkipInstruction { rank: Rank(rank), op: mnemonic(op)?, occurrence })
    }

    /// Lets the wave that comes to the `occurrence`-th execution of `op` on `rank` stand still for `ticks` of 10 ns.
    fn stall(&self, rank: u8, op: &str, occurrence: u64, ticks: u64) -> PyResult<usize> {
        self.inject(Fault::Stall { rank: Rank(rank), op: mnemonic(op)?, occurrence, ticks })
    }

    /// Flips `xor` in the `occurrence`-th store that `rank` makes into `region` of `owner`. Returns the fault's number.
    fn corrupt_store(&self, rank: u8, region: &str, owner: u8, occurrence: u64, xor: u64) -> PyResult<usize> {
        self.store_fault(rank, region, owner, occurrence, StoreFault::Corrupt(xor))
    }

    /// Loses that store.
    fn drop_store(&self, rank: u8, region: &str, owner: u8, occurrence: u64) -> PyResult<usize> {
        self.store_fault(rank, region, owner, occurrence, StoreFault::Drop)
    }

    /// Lets that store arrive when `launches` more launches of `rank` have ended.
    fn delay_store(&self, rank: u8, region: &str, owner: u8, occurrence: u64, launches: u64) -> PyResult<usize> {
        self.store_fault(rank, region, owner, occurrence, StoreFault::Delay(launches))
    }

    /// Loses the `occurrence`-th copy that the host queues on `rank`: the device sees what was there before.
    fn lose_copy(&self, rank: u8, occurrence: u64) -> PyResult<usize> {
        self.inject(Fault::LoseCopy { rank: Rank(rank), occurrence })
    }

    /// Whether an injected fault has happened.
    fn fault_fired(&self, fault: usize) -> PyResult<bool> {
        self.on_emulator("a fault", |engine| Ok(engine.device.has_fired(fault)))
    }
}

impl PyEngine {
    fn inject(&self, fault: Fault) -> PyResult<usize> {
        self.on_emulator("a fault", |engine| Ok(engine.device.inject(fault)))
    }

    fn store_fault(&self, rank: u8, name: &str, owner: u8, occurrence: u64, what: StoreFault) -> PyResult<usize> {
        let place = StorePlace { region: (Rank(owner), region(name)? as u32), rank: Rank(rank), occurrence };
        self.inject(Fault::Store(place, what))
    }
}
