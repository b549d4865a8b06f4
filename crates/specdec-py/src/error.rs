//! Rust errors as Python exceptions: the message is the sentence, `.hint` says what to do.

use std::convert::Infallible;

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use specdec_core::binding::BindingError;
use specdec_core::engine::EngineError;
use specdec_core::geometry::GeometryError;
use specdec_core::health::Failure;
use specdec_core::tasks::StepShapeError;
use specdec_emu::machine::EmulatorError;
use specdec_hip::HipError;

use crate::engine::fake_words;

create_exception!(kimi_k3_specdec, Refused, PyValueError, "A request that cannot be served; `.hint` says what to do.");
create_exception!(
    kimi_k3_specdec,
    MachineError,
    PyRuntimeError,
    "The device stopped a launch or refused a call; `.hint` says what to do."
);
create_exception!(
    kimi_k3_specdec,
    StepStopped,
    PyRuntimeError,
    "A step must not run or did not do what it had to; `.hint` says what to do."
);
create_exception!(
    kimi_k3_specdec,
    DeviceFailure,
    PyRuntimeError,
    "A rank gave up in a step; `.records` lists every workgroup's."
);

fn with_hint<T: pyo3::type_object::PyTypeInfo>(message: String, hint: &str) -> PyErr {
    let error = PyErr::new::<T, _>(message);
    Python::attach(|py| error.value(py).setattr("hint", hint).map_or_else(|failed| failed, |()| error))
}

/// A device's error that Python can be told of.
pub trait Raised: std::error::Error {
    /// As Python's.
    fn raised(&self) -> PyErr;
}

impl Raised for EmulatorError {
    fn raised(&self) -> PyErr {
        machine(self)
    }
}

impl Raised for HipError {
    fn raised(&self) -> PyErr {
        let is_of_a_call = matches!(self, Self::Call { .. } | Self::Earlier(_));
        let words = if is_of_a_call { fake_words() } else { None };
        let message = words.map_or_else(|| self.to_string(), |words| format!("{self}; the fake HIP: {words}"));
        with_hint::<MachineError>(message, self.hint())
    }
}

impl Raised for Infallible {
    fn raised(&self) -> PyErr {
        match *self {}
    }
}

/// An emulator's error, located.
pub fn machine(error: &EmulatorError) -> PyErr {
    with_hint::<MachineError>(error.to_string(), error.hint())
}

/// Something that other devices cannot do.
pub fn emulator_only(what: &str) -> PyErr {
    refused(format!("{what} is the emulator's: this device has none"), "make the ranks with device=\"emulator\"")
}

/// A captured graph that is not there.
pub fn unknown_graph(number: usize, captured: usize) -> PyErr {
    unknown("graph", &number.to_string(), &format!("the {captured} that were captured"))
}

/// A refused geometry or rank count.
pub fn geometry(error: &GeometryError) -> PyErr {
    with_hint::<Refused>(error.to_string(), &error.hint())
}

/// A refused step shape.
pub fn shape(error: &StepShapeError) -> PyErr {
    with_hint::<Refused>(error.to_string(), error.hint())
}

/// A refused layer binding.
pub fn binding(error: &BindingError) -> PyErr {
    with_hint::<Refused>(error.to_string(), "pass exactly the addresses and numbers that the layer's kind needs")
}

/// A step that the books do not allow.
pub fn stopped(message: String, hint: &str) -> PyErr {
    with_hint::<StepStopped>(message, hint)
}

/// Any other request that cannot be served.
pub fn refused(message: String, hint: &str) -> PyErr {
    with_hint::<Refused>(message, hint)
}

/// An unknown name of something.
pub fn unknown(what: &str, name: &str, known: &str) -> PyErr {
    refused(format!("unknown {what} `{name}`"), &format!("choose one of {known}"))
}

/// An engine's error.
pub fn engine<E: Raised>(error: EngineError<E>) -> PyErr {
    match error {
        EngineError::Device(error) => error.raised(),
        EngineError::Shape(error) => shape(&error),
        EngineError::Failed(failures) => {
            let sentences: Vec<String> = failures.iter().map(Failure::to_string).collect();
            let message = sentences.first().cloned().unwrap_or_else(|| "a rank failed without a record".into());
            let error = DeviceFailure::new_err(message);
            Python::attach(|py| {
                let value = error.value(py);
                let records = value.setattr("records", sentences);
                let hint =
                    value.setattr("hint", "no result of this step may be used; the first record names the culprit");
                records.and(hint).map_or_else(|failed| failed, |()| error)
            })
        }
        other => with_hint::<Refused>(other.to_string(), "bind every layer of the run on every rank before launching"),
    }
}
