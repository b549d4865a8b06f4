//! The HIP library, and what a fake one has to say of its failures.

use std::ffi::c_char;
use std::path::Path;
use std::sync::OnceLock;

use libloading::Library;
use pyo3::prelude::*;
use specdec_core::ids::Rank;
use specdec_hip::{Hip, HipDevice};

use crate::error::Raised;

/// `fake_hip_last_message`: copies as much as there is room for, returns the text's bytes.
type LastMessage = unsafe extern "C" fn(*mut c_char, usize) -> usize;

const FAKE_WORDS: &[u8] = b"fake_hip_last_message";
/// The first library of the process that has it; a process has one fake machine.
static FAKE: OnceLock<Library> = OnceLock::new();

/// The ranks `members` of a group, each on the device of its number; `library` None: the process's HIP, or the installed one.
pub fn device(library: Option<&Path>, ranks: u32, members: &[Rank]) -> PyResult<HipDevice> {
    let hip = library.map_or_else(Hip::load, Hip::open).map_err(|e| e.raised())?;
    remember(hip.path());
    // The driver knows ranks by their numbers: those of other processes take the place of this one's first.
    let first = members.first().map_or(0, |rank| u32::from(rank.0));
    let is_member = |rank: &u32| members.iter().any(|member| u32::from(member.0) == *rank);
    let devices: Vec<u32> = (0..ranks).map(|rank| if is_member(&rank) { rank } else { first }).collect();
    HipDevice::new(&hip, &devices).map_err(|e| e.raised())
}

fn remember(path: &Path) {
    // SAFETY: the library is loaded already, so no initialiser runs.
    let Ok(library) = (unsafe { Library::new(path) }) else { return };
    // SAFETY: only the fake library has a function of this name, and it has this type.
    if unsafe { library.get::<LastMessage>(FAKE_WORDS) }.is_ok() {
        let _ = FAKE.set(library);
    }
}

/// What the emulator behind a fake library said last, if there is one.
pub fn fake_words() -> Option<String> {
    // SAFETY: as in `remember`.
    let words = unsafe { FAKE.get()?.get::<LastMessage>(FAKE_WORDS) }.ok()?;
    let mut text = vec![0_u8; 4096];
    // SAFETY: there is room for as many bytes as it is told.
    let bytes = unsafe { words(text.as_mut_ptr().cast(), text.len()) };
    text.truncate(bytes.min(text.len() - 1));
    Some(String::from_utf8_lossy(&text).into_owned()).filter(|text| !text.is_empty())
}
