//! The machine around the waves: code objects, memory, dispatch, time, faults, tap.
