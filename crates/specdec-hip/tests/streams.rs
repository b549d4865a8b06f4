//! Somebody else's streams and captures, the thread's device, and the start-up self-test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

mod fake;

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use fake::{bytes, code_object, kernarg, launch, words, Fake};
use specdec_core::device::{Device, MemoryKind};
use specdec_core::ids::Rank;
use specdec_hip::self_test::{self, KernelCheck, Part, Verdict};
use specdec_hip::{Hip, HipDevice, HipError};

type Raw = *mut c_void;
type Instantiate = unsafe extern "C" fn(*mut Raw, Raw, *mut Raw, *mut c_char, usize) -> c_int;
const ZERO: Rank = Rank(0);

/// A framework that has streams and captures of its own, as torch has, through the library's C ABI.
struct Framework(libloading::Library);

impl Framework {
    fn new() -> Self {
        // SAFETY: the library has no initialisers.
        Self(unsafe { libloading::Library::new(fake::path()) }.unwrap())
    }

    fn get<T: Copy>(&self, name: &str) -> T {
        // SAFETY: every caller names a function of HIP by its own type.
        *unsafe { self.0.get::<T>(name.as_bytes()) }.unwrap()
    }

    fn stream(&self) -> Raw {
        let create: unsafe extern "C" fn(*mut Raw, u32) -> c_int = self.get("hipStreamCreateWithFlags");
        let mut stream = null_mut();
        // SAFETY: it writes one handle.
        assert_eq!(unsafe { create(&raw mut stream, 1) }, 0);
        stream
    }

    fn take(&self, name: &str, handle: Raw) {
        let call: unsafe extern "C" fn(Raw) -> c_int = self.get(name);
        // SAFETY: the handle is alive.
        assert_eq!(unsafe { call(handle) }, 0, "{name}");
    }

    fn begin_capture(&self, stream: Raw) {
        let call: unsafe extern "C" fn(Raw, c_int) -> c_int = self.get("hipStreamBeginCapture");
        // SAFETY: the stream is alive.
        assert_eq!(unsafe { call(stream, 1) }, 0);
    }

    fn end_capture(&self, stream: Raw) -> Raw {
        let (mut graph, mut instance) = (null_mut(), null_mut());
        let call: unsafe extern "C" fn(Raw, *mut Raw) -> c_int = self.get("hipStreamEndCapture");
        // SAFETY: the stream is alive, and it writes one handle.
        assert_eq!(unsafe { call(stream, &raw mut graph) }, 0);
        let call: Instantiate = self.get("hipGraphInstantiate");
        // SAFETY: the graph is alive, and it writes one handle.
        assert_eq!(unsafe { call(&raw mut instance, graph, null_mut(), null_mut(), 0) }, 0);
        self.take("hipGraphDestroy", graph);
        instance
    }

    fn replay(&self, instance: Raw, stream: Raw) {
        let call: unsafe extern "C" fn(Raw, Raw) -> c_int = self.get("hipGraphLaunch");
        // SAFETY: both are alive.
        assert_eq!(unsafe { call(instance, stream) }, 0);
    }

    fn last_error(&self) -> c_int {
        let call: unsafe extern "C" fn() -> c_int = self.get("hipGetLastError");
        // SAFETY: it takes nothing.
        unsafe { call() }
    }

    fn set_device(&self, device: c_int) {
        let call: unsafe extern "C" fn(c_int) -> c_int = self.get("hipSetDevice");
        // SAFETY: it takes any number.
        assert_eq!(unsafe { call(device) }, 0);
    }
}

#[test]
fn a_capture_of_the_framework_takes_in_what_the_driver_queues() {
    let fake = Fake::new(1);
    let framework = Framework::new();
    let mut device = HipDevice::new(&fake.hip(), &[0]).unwrap();
    let module = device.load(code_object()).unwrap();
    let a = device.allocate(ZERO, MemoryKind::Device, 256, "a").unwrap();
    let b = device.allocate(ZERO, MemoryKind::Device, 256, "b").unwrap();
    let (eager, side) = (framework.stream(), framework.stream());
    // SAFETY: the framework's streams outlive the driver.
    unsafe { device.set_stream(ZERO, eager as usize) }.unwrap();
    launch(&mut device, 0, module, "affine", kernarg(&[a, b], &[3])).unwrap();
    assert_eq!(device.stream(ZERO).unwrap().raw(), eager as usize);
    // As torch does: the capture has begun, on a side stream, when the driver hears of that stream.
    let mut instances = Vec::new();
    for value in [10, 20] {
        framework.begin_capture(side);
        // SAFETY: as above.
        unsafe { device.set_stream(ZERO, side as usize) }.unwrap();
        assert!(device.is_capturing(ZERO).unwrap());
        assert!(matches!(device.synchronize(), Err(HipError::Capturing { rank: ZERO, .. })));
        device.queue_write(ZERO, a, &bytes(&[value; 64])).unwrap();
        launch(&mut device, 0, module, "affine", kernarg(&[a, b], &[1])).unwrap();
        assert!(matches!(device.end_capture(ZERO), Err(HipError::NotCapturing { .. })));
        instances.push(framework.end_capture(side));
        // SAFETY: as above.
        unsafe { device.set_stream(ZERO, eager as usize) }.unwrap();
    }
    // The null stream is never asked whether it captures while another stream does: HIP refuses the question.
    framework.begin_capture(side);
    // SAFETY: the null stream is always alive.
    unsafe { device.set_stream(ZERO, 0) }.unwrap();
    assert!(!device.is_capturing(ZERO).unwrap());
    instances.push(framework.end_capture(side));
    // SAFETY: as above.
    unsafe { device.set_stream(ZERO, eager as usize) }.unwrap();
    // The driver's own captures come between the framework's replays and take none of their bytes.
    device.begin_capture(ZERO).unwrap();
    device.queue_write(ZERO, a, &bytes(&[99; 64])).unwrap();
    let own = device.end_capture(ZERO).unwrap();
    drop(own);
    for (index, value) in [(0, 31), (1, 61), (0, 31)] {
        framework.replay(instances[index], eager);
        device.synchronize().unwrap();
        assert_eq!(words(&device, b).unwrap(), [value; 64]);
    }
    // A replay that the driver has not seen is waited for too.
    framework.replay(instances[1], eager);
    device.free(a).unwrap();
    assert_eq!(words(&device, b).unwrap(), [61; 64]);
    // The driver's failures are not the framework's: HIP remembers the last one.
    device.allocate(ZERO, MemoryKind::Device, u64::MAX, "too much").unwrap_err();
    assert_eq!(framework.last_error(), 0);
    device.close().unwrap();
    for instance in instances {
        framework.take("hipGraphExecDestroy", instance);
    }
    for stream in [eager, side] {
        framework.take("hipStreamDestroy", stream);
    }
    assert_eq!(fake.live(), []);
}

#[test]
fn the_threads_device_stays_what_it_was() {
    let fake = Fake::new(3);
    let framework = Framework::new();
    let hip = fake.hip();
    framework.set_device(2);
    let check = |hip: &Hip, what: &str| assert_eq!(hip.current_device().unwrap(), 2, "after {what}");
    let mut device = HipDevice::new(&hip, &[0, 1]).unwrap();
    check(&hip, "new");
    let module = device.load(code_object()).unwrap();
    check(&hip, "load");
    let a = device.allocate(Rank(1), MemoryKind::Device, 256, "a").unwrap();
    let b = device.allocate(Rank(1), MemoryKind::HostPinned, 256, "b").unwrap();
    check(&hip, "allocate");
    device.map_peer(a, Rank(1), ZERO).unwrap();
    check(&hip, "map_peer");
    device.begin_capture(Rank(1)).unwrap();
    launch(&mut device, 1, module, "affine", kernarg(&[a, b], &[8])).unwrap();
    let graph = device.end_capture(Rank(1)).unwrap();
    device.launch_graph(Rank(1), &graph).unwrap();
    check(&hip, "a graph");
    device.write(a, &[1; 256]).unwrap();
    assert_eq!(words(&device, b).unwrap(), [8; 64]);
    assert!(device.allocate(Rank(1), MemoryKind::Device, u64::MAX, "too much").is_err());
    check(&hip, "an error");
    device.close().unwrap();
    drop(graph);
    check(&hip, "close");
    framework.set_device(0);
}

#[test]
fn the_self_test_tells_right_replays_from_wrong_ones() {
    let affine = |source: &[u8]| {
        let words = source.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        words.flat_map(|word| word.wrapping_mul(3).wrapping_add(17).to_le_bytes()).collect::<Vec<u8>>()
    };
    let arguments = |from, to| kernarg(&[from, to], &[17]);
    let mut check = KernelCheck {
        code_object: code_object(),
        symbol: "affine",
        grid: 4,
        block: 64,
        kernarg: &arguments,
        expected: &affine,
    };
    let fake = Fake::new(2);
    let passed = Verdict::Passed { replays: self_test::REPLAYS };
    assert_eq!(self_test::run(&fake.hip(), 1, None).unwrap(), passed);
    assert_eq!(self_test::run(&fake.hip(), 1, Some(&check)).unwrap(), passed);
    assert_eq!(passed.to_string(), "32 replays of a graph were right");
    let wrong = |source: &[u8]| {
        let mut expected = affine(source);
        expected[77] ^= 1;
        expected
    };
    check.expected = &wrong;
    let verdict = self_test::run(&fake.hip(), 1, Some(&check)).unwrap();
    assert!(matches!(verdict, Verdict::Differs { replay: 0, part: Part::Kernel, offset: 77, .. }), "{verdict}");
    assert_eq!(fake.live(), []);
    drop(fake);
    let fake = Fake::with_options(1, r#"{"stale_from_launch": 5}"#);
    let verdict = self_test::run(&fake.hip(), 0, None).unwrap();
    assert!(
        matches!(verdict, Verdict::Differs { replay: 5, part: Part::Copy, offset: 0, found: 0x3c, .. }),
        "{verdict}"
    );
    assert!(verdict
        .to_string()
        .starts_with("replay 5 of a graph: the copy of bytes written just before has 0x3c at 0"));
    fake.fail("hipStreamEndCapture", 1, 901);
    let error = self_test::run(&fake.hip(), 0, None).unwrap_err();
    assert!(error.hint().contains("capture"), "{error}");
    assert_eq!(fake.live(), []);
}
