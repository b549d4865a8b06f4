//! `Board`: where the ranks of a group show each other their books.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use specdec_core::ids::Rank;
use specdec_core::replay::REPORT_BYTES;
use specdec_emu::machine::{Board, BoardError};

use crate::engine::peer_handle;
use crate::error;

/// A rank's place at a board in memory that the group's processes share: `create` on rank 0, `join` elsewhere.
#[pyclass(module = "kimi_k3_specdec._native", name = "Board", frozen)]
pub struct PyBoard(Mutex<Board>);

impl PyBoard {
    fn lock(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new(board: Result<Board, BoardError>) -> PyResult<Self> {
        board.map(|board| Self(Mutex::new(board))).map_err(refused)
    }
}

fn refused(error: BoardError) -> PyErr {
    error::refused(error.to_string(), error.hint())
}

#[pymethods]
impl PyBoard {
    /// A board for the books of `ranks` ranks, and rank 0's place. Raises `Refused`.
    #[staticmethod]
    fn create(ranks: u32) -> PyResult<Self> {
        Self::new(Board::create(ranks, REPORT_BYTES))
    }

    /// A rank's place at the board of `handle`. Raises `Refused`.
    #[staticmethod]
    fn join(handle: Vec<u8>, rank: u8) -> PyResult<Self> {
        Self::new(Board::join(&peer_handle(handle)?, Rank(rank), REPORT_BYTES))
    }

    /// With what the other ranks join, while this board lives.
    fn handle<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.lock().handle().0)
    }

    /// Shows this rank's books, as `Executor.after_step` gave them; nobody waits. Raises `Refused` before the last ones
    /// have been collected.
    fn cast(&self, books: &[u8]) -> PyResult<()> {
        self.lock().cast(books).map_err(refused)
    }

    /// Every rank's books of this rank's last vote, one behind the other, for `Executor.verdict`: None while some are
    /// missing, and empty once they have been collected.
    fn collect<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.lock().collect().map(|books| PyBytes::new(py, &books))
    }

    /// Waits until no books are missing, at most so many seconds; whether none are. Other threads run meanwhile.
    fn wait(&self, py: Python<'_>, seconds: f64) -> bool {
        let at_most = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        py.detach(|| self.lock().wait(at_most))
    }

    /// Ranks whose books are missing.
    fn missing(&self) -> Vec<u32> {
        self.lock().missing().map(|rank| rank.0.into()).collect()
    }
}
