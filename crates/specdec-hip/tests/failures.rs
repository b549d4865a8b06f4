//! Every call fails in turn, and every step panics in turn: the error names the call, and nothing stays behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

mod fake;

use std::panic::{catch_unwind, AssertUnwindSafe};

use fake::{bytes, code_object, kernarg, launch, words, Fake};
use specdec_core::device::{Device, MemoryKind};
use specdec_core::ids::Rank;
use specdec_hip::{DeviceMemory, Event, Hip, HipDevice, HipError, Stream};

/// `hipErrorUnknown`, which the library never returns of its own accord.
const UNKNOWN: i32 = 999;

/// Everything that the driver can do, once. `step` is called between any two steps.
fn scenario(fake: &Fake, step: &mut dyn FnMut()) -> Result<(), HipError> {
    let hip = fake.hip();
    describe(&hip)?;
    step();
    time(&hip, step)?;
    let mut device = HipDevice::new(&hip, &[0, 1])?;
    step();
    decode(&mut device, step)?;
    step();
    device.close()
}

fn describe(hip: &Hip) -> Result<(), HipError> {
    assert_eq!(hip.device_count()?, 2);
    hip.driver_version()?;
    hip.runtime_version()?;
    assert!(hip.can_access_peer(0, 1)?);
    assert_eq!(hip.device_facts(1)?.compute_units, 256);
    hip.synchronize_device(1)
}

/// Streams and events by themselves.
fn time(hip: &Hip, step: &mut dyn FnMut()) -> Result<(), HipError> {
    let stream = Stream::new(hip, 1)?;
    let memory = DeviceMemory::ordinary(hip, 1, 256)?;
    let (start, end) = (Event::new(hip, 1)?, Event::new(hip, 1)?);
    start.record(&stream)?;
    // SAFETY: the memory outlives the stream's work: dropping it waits.
    unsafe { stream.fill(memory.address(), 7, 256) }?;
    end.record(&stream)?;
    step();
    assert!(!end.has_passed()?);
    end.wait()?;
    assert!(end.has_passed()? && start.milliseconds_to(&end)? >= 0.0);
    start.release()?;
    end.release()?;
    memory.release()
}

/// What a step does: peers, launches, graphs, copies, both ways to write and to read.
fn decode(device: &mut HipDevice, step: &mut dyn FnMut()) -> Result<(), HipError> {
    let module = device.load(code_object())?;
    let kinds = [MemoryKind::Device, MemoryKind::Uncached, MemoryKind::HostPinned];
    let mut memory = Vec::new();
    for kind in kinds {
        memory.push(device.allocate(Rank(0), kind, 256, "memory")?);
        step();
    }
    let [input, mailbox, health] = memory[..] else { panic!("three kinds") };
    assert_eq!(device.map_peer(mailbox, Rank(0), Rank(1))?, mailbox);
    let tensor = vec![5u32; 64];
    // SAFETY: the tensor outlives its registration.
    let tensor_address = unsafe { device.register(Rank(0), tensor.as_ptr() as usize, 256) }?;
    step();
    device.write(input, &bytes(&[1; 64]))?;
    device.queue_write(Rank(0), mailbox, &bytes(&[2; 64]))?;
    step();
    launch(device, 0, module, "affine", kernarg(&[tensor_address, health], &[4]))?;
    device.synchronize()?;
    assert_eq!(words(device, health)?, [19; 64]);
    device.begin_capture(Rank(0))?;
    step();
    device.queue_write(Rank(0), mailbox, &bytes(&[6; 64]))?;
    launch(device, 0, module, "affine", kernarg(&[mailbox, input], &[1]))?;
    device.queue_copy(Rank(0), health, input, 256)?;
    assert!(device.is_capturing(Rank(0))?);
    let graph = device.end_capture(Rank(0))?;
    step();
    device.launch_graph(Rank(0), &graph)?;
    step();
    device.synchronize()?;
    assert_eq!((words(device, input)?, words(device, health)?), (vec![19; 64], vec![19; 64]));
    device.launch_graph(Rank(0), &graph)?;
    graph.release()?;
    device.unregister(tensor_address)?;
    device.free(mailbox)
}

#[test]
fn every_call_that_fails_is_named_and_leaves_nothing() {
    let fake = Fake::new(2);
    scenario(&fake, &mut || ()).unwrap();
    assert_eq!(fake.live(), []);
    // What speaks of a failure is tested below, and what other processes take part in with them.
    let words = ["hipGetErrorString", "hipGetLastError"];
    let shared = ["hipIpcGetMemHandle", "hipIpcOpenMemHandle", "hipIpcCloseMemHandle"];
    let names = fake.calls().into_iter().filter(|name| !words.contains(&name.as_str()));
    let counts: Vec<(String, u64)> = names.map(|name| (name.clone(), fake.count(&name))).collect();
    let mut failures = 0;
    for (name, count) in counts {
        assert_eq!(count == 0, shared.contains(&name.as_str()), "`{name}` was called {count} times");
        for nth in 1..=count {
            fake.reset();
            fake.fail(&name, nth, UNKNOWN);
            let error = scenario(&fake, &mut || ()).expect_err(&format!("call {nth} of `{name}` failed"));
            let text = error.to_string();
            assert!(text.contains(&format!("`{name}`")), "{name} {nth}: {text}");
            assert!(text.ends_with("failed with hipErrorUnknown (999): unknown error"), "{name} {nth}: {text}");
            assert!(!error.hint().is_empty());
            assert_eq!(fake.live(), [], "after call {nth} of `{name}` failed");
            failures += 1;
        }
    }
    assert!(failures > 100, "{failures} failures were tried");
}

#[test]
fn a_library_without_words_for_a_status_still_has_its_name() {
    let fake = Fake::new(2);
    fake.fail("hipGetErrorString", 0, UNKNOWN);
    fake.fail("hipGetLastError", 0, UNKNOWN);
    fake.fail("hipMalloc", 1, 2);
    let error = scenario(&fake, &mut || ()).unwrap_err();
    assert_eq!(error.to_string(), "`hipMalloc` failed with hipErrorOutOfMemory (2)");
    fake.reset();
    fake.fail("hipMalloc", 2, 4711);
    let error = scenario(&fake, &mut || ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`hipMalloc` of `memory`, 256 bytes on rank 0 failed with status 4711: unknown error"
    );
}

#[test]
fn a_panic_anywhere_leaves_nothing() {
    let fake = Fake::new(2);
    let mut steps = 0;
    scenario(&fake, &mut || steps += 1).unwrap();
    assert!(steps > 10);
    for wanted in 1..=steps {
        fake.reset();
        let mut at = 0;
        let mut step = || {
            at += 1;
            // Without the hook, which would print this.
            if at == wanted {
                std::panic::resume_unwind(Box::new(()));
            }
        };
        assert!(catch_unwind(AssertUnwindSafe(|| scenario(&fake, &mut step))).is_err());
        assert_eq!(fake.live(), [], "after a panic at step {wanted}");
    }
}
