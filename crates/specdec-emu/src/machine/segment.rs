//! Memory that processes share: an anonymous file, mapped, with a footer by which an importer knows it.
//!
//! The file has no name, so nothing is left of it once the last process that holds it has ended, however it ended. Others
//! store while this process reads: every access is atomic, in whole 8-byte units wherever address and length allow, so
//! an exchange pair never tears. Ordinary references to the bytes are never made.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};

/// What the file's name in `/proc/PID/fd` begins with.
pub(super) const FILE_NAME: &str = "kimi_k3_specdec";
/// Footers start on such a boundary, which is that of the lines that polls watch.
pub(super) const LINE_BYTES: u64 = 64;
/// Bytes of the footer: the nonce, then room.
const FOOTER_BYTES: u64 = LINE_BYTES;

/// A shared mapping of `bytes` and its footer.
#[derive(Debug)]
pub(super) struct Segment {
    map: MmapRaw,
    file: File,
    bytes: u64,
}

impl Segment {
    /// Bytes of the file that holds `bytes`; `None` if there is no such size.
    pub fn file_bytes(bytes: u64) -> Option<u64> {
        bytes.max(1).checked_next_multiple_of(LINE_BYTES)?.checked_add(FOOTER_BYTES)
    }

    /// Zeroed bytes that others can map. The file's size can change no more, so nobody's mapping ever ends early.
    pub fn create(bytes: u64) -> io::Result<Self> {
        let file_bytes = Self::file_bytes(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let file = rustix::fs::memfd_create(FILE_NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let file = File::from(file);
        file.set_len(file_bytes)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let segment = Self { map: MmapOptions::new().map_raw(&file)?, file, bytes };
        let mut nonce = [0; 16];
        rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
        segment.write(segment.footer(), &nonce);
        Ok(segment)
    }

    /// Maps a file that another process made for `bytes`. The caller has checked its size.
    pub fn open(file: File, bytes: u64) -> io::Result<Self> {
        Ok(Self { map: MmapOptions::new().map_raw(&file)?, file, bytes })
    }

    fn footer(&self) -> u64 {
        self.bytes.max(1).next_multiple_of(LINE_BYTES)
    }

    /// The random words that tell this file from every other.
    pub fn nonce(&self) -> [u8; 16] {
        let mut nonce = [0; 16];
        self.read(self.footer(), &mut nonce);
        nonce
    }

    /// Bytes without the footer.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file's number in this process.
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Host address of the first byte.
    pub fn host(&self) -> usize {
        self.map.as_mut_ptr().expose_provenance()
    }

    /// A place of `size` bytes, its own multiple; the whole file is ours to touch.
    fn place(&self, offset: u64, size: u64) -> *mut u8 {
        assert!(offset.is_multiple_of(size) && offset + size <= self.footer() + FOOTER_BYTES, "checked by the caller");
        self.map.as_mut_ptr().wrapping_add(offset as usize)
    }

    /// Eight bytes at a multiple of eight.
    #[inline]
    pub fn unit(&self, offset: u64) -> &AtomicU64 {
        let place = self.place(offset, 8).cast();
        // SAFETY: `place` is aligned, as the mapping starts on a page; it is mapped as long as `self` is borrowed, and
        // all processes touch it by atomic operations only.
        unsafe { AtomicU64::from_ptr(place) }
    }

    /// Four bytes at a multiple of four.
    #[inline]
    pub fn word(&self, offset: u64) -> &AtomicU32 {
        let place = self.place(offset, 4).cast();
        // SAFETY: as in `unit`.
        unsafe { AtomicU32::from_ptr(place) }
    }

    fn byte(&self, offset: u64) -> &AtomicU8 {
        let place = self.place(offset, 1);
        // SAFETY: as in `unit`.
        unsafe { AtomicU8::from_ptr(place) }
    }

    /// Copies bytes out, in the widest whole units.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let (mut offset, mut rest) = (offset, into);
        while !rest.is_empty() {
            let size = unit_bytes(offset, rest.len());
            let (now, later) = rest.split_at_mut(size);
            match size {
                8 => now.copy_from_slice(&self.unit(offset).load(Ordering::Acquire).to_le_bytes()),
                4 => now.copy_from_slice(&self.word(offset).load(Ordering::Acquire).to_le_bytes()),
                _ => now[0] = self.byte(offset).load(Ordering::Acquire),
            }
            (offset, rest) = (offset + size as u64, later);
        }
    }

    /// Copies bytes in, in the widest whole units.
    pub fn write(&self, offset: u64, from: &[u8]) {
        let (mut offset, mut rest) = (offset, from);
        while let Some(&first) = rest.first() {
            let size = unit_bytes(offset, rest.len());
            let value = rest[..size].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
            match size {
                8 => self.unit(offset).store(value, Ordering::Release),
                4 => self.word(offset).store(value as u32, Ordering::Release),
                _ => self.byte(offset).store(first, Ordering::Release),
            }
            (offset, rest) = (offset + size as u64, &rest[size..]);
        }
    }

    /// Replaces four or eight aligned bytes by what `change` makes of them, as one operation; the old value.
    pub fn update(&self, offset: u64, bytes: usize, change: impl Fn(u64) -> u64) -> u64 {
        let (on_success, on_failure) = (Ordering::AcqRel, Ordering::Acquire);
        if bytes == 8 {
            let done = self.unit(offset).fetch_update(on_success, on_failure, |old| Some(change(old)));
            return done.unwrap_or_else(|old| old);
        }
        let change = |old: u32| Some(change(old.into()) as u32);
        self.word(offset).fetch_update(on_success, on_failure, change).unwrap_or_else(|old| old).into()
    }

    /// The line that holds an offset; the last one reaches into what follows the bytes.
    pub fn line(&self, offset: u64) -> [u64; 8] {
        let first = offset / LINE_BYTES * LINE_BYTES;
        std::array::from_fn(|unit| self.unit(first + 8 * unit as u64).load(Ordering::Acquire))
    }
}

/// The widest unit that may be accessed at an offset when so many bytes are left.
#[inline]
fn unit_bytes(offset: u64, left: usize) -> usize {
    match offset % 8 {
        0 if left >= 8 => 8,
        0 | 4 if left >= 4 => 4,
        _ => 1,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_come_back_as_they_went(offset in 0u64..100, data in proptest::collection::vec(any::<u8>(), 0..100)) {
            let segment = Segment::create(200).unwrap();
            segment.write(offset, &data);
            let mut whole = [0; 200];
            segment.read(0, &mut whole);
            let mut expected = [0; 200];
            expected[offset as usize..][..data.len()].copy_from_slice(&data);
            prop_assert_eq!(whole, expected);
            let mut part = vec![0; data.len()];
            segment.read(offset, &mut part);
            prop_assert_eq!(part, data);
        }
    }

    #[test]
    fn pairs_never_tear() {
        let segment = Segment::create(64).unwrap();
        let other = Segment::open(segment.file.try_clone().unwrap(), 64).unwrap();
        assert_eq!(segment.nonce(), other.nonce());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..200_000u32 {
                    other.write(8, &[value.to_le_bytes(), value.to_le_bytes()].concat());
                }
            });
            let mut pair = [0; 8];
            while pair != [199_999u32.to_le_bytes(), 199_999u32.to_le_bytes()].concat()[..] {
                segment.read(8, &mut pair);
                assert_eq!(pair[..4], pair[4..]);
            }
        });
    }

    #[test]
    fn updates_of_two_mappings_add_up() {
        let segment = Segment::create(16).unwrap();
        let other = Segment::open(segment.file.try_clone().unwrap(), 16).unwrap();
        let add = |segment: &Segment| {
            for _ in 0..10_000 {
                segment.update(0, 8, |old| old + 1);
                segment.update(12, 4, |old| old + 1);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| add(&other));
            add(&segment);
        });
        assert_eq!((segment.update(0, 8, |old| old), segment.update(12, 4, |old| old)), (20_000, 20_000));
    }

    #[test]
    fn nobody_can_cut_the_file_short() {
        let segment = Segment::create(4096).unwrap();
        assert!(segment.file.set_len(64).is_err() && segment.file.set_len(1 << 20).is_err());
        assert!(Segment::create(u64::MAX).is_err());
    }
}
