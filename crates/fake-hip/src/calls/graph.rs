//! Graphs that were recorded.

use std::ffi::c_char;

use super::{calls, give, number, pointer, Raw};
use crate::machine::Machine;

calls! {
    /// Makes a graph ready to launch on the thread's device.
    fn hipGraphInstantiate(machine, instance: *mut Raw, graph: Raw, _node: *mut Raw, _log: *mut c_char, _bytes: usize) {
        let handle = number(graph) as usize;
        let work = machine.graphs.get(&handle).cloned().ok_or_else(|| Machine::stale("graph", handle))?;
        let (device, made) = (machine.device()?, machine.fresh());
        machine.graph_instances.insert(made, (device, work));
        // SAFETY: the caller's contract.
        unsafe { give(instance, pointer(made as u64)) }
    }

    /// Ends a graph; its instances stay.
    fn hipGraphDestroy(machine, graph: Raw) {
        let handle = number(graph) as usize;
        machine.graphs.remove(&handle).map(|_| ()).ok_or_else(|| Machine::stale("graph", handle))
    }

    /// Queues everything that a graph recorded.
    fn hipGraphLaunch(machine, instance: Raw, stream: Raw) {
        machine.launch_graph(number(instance) as usize, number(stream) as usize)
    }

    /// Ends an instance.
    fn hipGraphExecDestroy(machine, instance: Raw) {
        machine.forbid_while_busy("hipGraphExecDestroy")?;
        let handle = number(instance) as usize;
        machine.graph_instances.remove(&handle).map(|_| ()).ok_or_else(|| Machine::stale("graph instance", handle))
    }
}
