//! A resident workgroup: its LDS and its barrier.

use super::lds::Lds;

/// One resident workgroup.
#[derive(Debug)]
pub(super) struct Group {
    pub lds: Lds,
    /// Its waves, by their number in the machine.
    pub waves: Vec<u32>,
    /// Waves at the barrier.
    pub num_waiting: u32,
    pub num_ended: u32,
    /// Per barrier pc, the most bytes of vector loads that were in flight there.
    pub loads_in_flight: Vec<(u32, u64)>,
}

impl Group {
    /// A workgroup without waves yet.
    pub fn new(lds_bytes: u32) -> Self {
        Self { lds: Lds::new(lds_bytes), waves: Vec::new(), num_waiting: 0, num_ended: 0, loads_in_flight: Vec::new() }
    }

    /// Notes the loads in flight when all waves have reached the barrier at `pc`.
    pub fn pass_barrier(&mut self, pc: u32, bytes: u64) {
        self.num_waiting = 0;
        if let Some(races) = &self.lds.races {
            races.borrow_mut().pass_barrier();
        }
        match self.loads_in_flight.iter_mut().find(|(known, _)| *known == pc) {
            Some((_, most)) => *most = bytes.max(*most),
            None => self.loads_in_flight.push((pc, bytes)),
        }
    }
}
