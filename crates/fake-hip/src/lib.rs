//! HIP's C ABI over the gfx950 emulator: what `specdec-hip` is tested against, never part of a wheel.
//!
//! Every call that `specdec-hip` makes is here, stricter than the real one where a program could be wrong without HIP
//! saying so. What differs from a GPU:
//! - A device is a rank of one emulator. What is queued on any stream runs when somebody synchronises a stream that has
//!   something queued, a device or an event; then everything that is queued runs, on all devices at once. Streams of one
//!   device run what was queued in the order of the calls.
//! - The null stream does its fills when it, a copy or a device is waited for, and waits for no other stream, as HIP's
//!   for streams that are non-blocking.
//! - Giving something back while anything is queued is an error, as are a launch on a stream of another device than the
//!   thread's, and arguments of another size than the kernel's.
//! - An allocation or a synchronisation on a thread that captures spoils the capture; so does, on any thread, what
//!   goes to the null stream.
//! - A launch that fails is reported by the synchronisation that ran it, and by nothing after it.
//!
//! `FAKE_HIP_DEVICES`, `FAKE_HIP_OPTIONS` and `FAKE_HIP_FAIL` are read when the first call comes; see `control`.

mod calls;
mod failures;
mod machine;
mod options;
mod queue;
mod status;
