//! Graphs that were recorded.

use std::ptr::null_mut;

use super::{check, take, take_pair, Handle};
use crate::sys::Functions;
use crate::HipError;

pub fn instantiate(functions: &Functions, graph: Handle) -> Result<Handle, HipError> {
    let call = functions.require(&functions.graph_instantiate)?;
    let mut made = null_mut();
    // SAFETY: the graph's owner keeps it alive; `call` writes one handle through its first argument, which is valid for
    // it, and takes null where nobody wants to know the failing node or its log.
    let status = unsafe { call(&raw mut made, graph.raw(), null_mut(), null_mut(), 0) };
    check(functions, functions.graph_instantiate.name, status).map(|()| Handle::of(made))
}

pub fn destroy(functions: &Functions, graph: Handle) -> Result<(), HipError> {
    take(functions, &functions.graph_destroy, graph)
}

pub fn launch(functions: &Functions, instance: Handle, stream: Handle) -> Result<(), HipError> {
    take_pair(functions, &functions.graph_launch, instance, stream)
}

pub fn destroy_instance(functions: &Functions, instance: Handle) -> Result<(), HipError> {
    take(functions, &functions.graph_exec_destroy, instance)
}
