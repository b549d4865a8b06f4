//! Two processes with a driver each: memory that one exports and the other imports, kernels that wait for each other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

mod fake;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use fake::{bytes, code_object, kernarg, launch, words, Fake};
use specdec_core::device::{Device, MemoryKind, PeerHandle};
use specdec_core::ids::{DeviceAddress, Rank};
use specdec_hip::{HipDevice, HipError, HipModule, Status};

/// Set in the second process.
const ROLE: &str = "SPECDEC_HIP_TEST_PEER";
const ZERO: Rank = Rank(0);
const ROUNDS: u32 = 20;

fn to_text(handle: &[u8; 64]) -> String {
    handle.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn to_handle(text: &str) -> [u8; 64] {
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("a handle");
    std::array::from_fn(byte)
}

/// The second process, which runs `the_peer` of this file.
struct Peer {
    process: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Peer {
    fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "the_peer", "--nocapture", "--test-threads=1"]).env(ROLE, "1");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        // The harness writes lines of its own.
        let lines = lines.filter_map(|line| line.strip_prefix("peer: ").map(Into::into));
        Self { process, lines: Box::new(lines) }
    }

    fn hear(&mut self) -> String {
        self.lines.next().expect("the peer lives")
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One process's half of the exchange.
struct Half {
    device: HipDevice,
    module: HipModule,
    mailbox: DeviceAddress,
    out: DeviceAddress,
}

impl Half {
    fn new(fake: &Fake) -> Self {
        let mut device = HipDevice::new(&fake.hip(), &[0]).unwrap();
        let module = device.load(code_object()).unwrap();
        let mailbox = device.allocate(ZERO, MemoryKind::Uncached, 1024, "mailbox").unwrap();
        let out = device.allocate(ZERO, MemoryKind::Device, 256, "out").unwrap();
        Self { device, module, mailbox, out }
    }

    fn trade(&mut self, fake: &Fake, peers: DeviceAddress, first: u32) -> Vec<u32> {
        let arguments = kernarg(&[self.mailbox, peers, self.out], &[first, ROUNDS]);
        launch(&mut self.device, 0, self.module, "trade", arguments).unwrap();
        self.device.synchronize().unwrap_or_else(|error| panic!("{error}: {}", fake.message()));
        words(&self.device, self.out).unwrap()
    }
}

/// What `trade` makes of both sides' first values, for the one that begins with `first`.
fn expected(first: u32, other: u32) -> Vec<u32> {
    let (mut mine, mut theirs): (Vec<u32>, Vec<u32>) = ((first..first + 64).collect(), (other..other + 64).collect());
    for _ in 0..ROUNDS {
        let next = |a: &[u32], b: &[u32]| -> Vec<u32> {
            a.iter().zip(b).map(|(a, b)| a.wrapping_mul(5).wrapping_add(*b)).collect()
        };
        (mine, theirs) = (next(&mine, &theirs), next(&theirs, &mine));
    }
    mine
}

/// Not a test by itself: the second process, when it is one.
#[test]
fn the_peer() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let say = |line: &str| {
        let mut out = std::io::stdout();
        writeln!(out, "\npeer: {line}").and_then(|()| out.flush()).unwrap();
    };
    let lines = std::io::stdin().lines().map(Result::unwrap);
    let fake = Fake::new(1);
    let mut half = Half::new(&fake);
    say(&to_text(&half.device.export_peer(half.mailbox).unwrap().0));
    for line in lines {
        match line.split_once(' ') {
            Some(("join", world)) => fake.join_world(&to_handle(world), 1),
            Some(("trade", handle)) => {
                let peers = half.device.import_peer(&PeerHandle(to_handle(handle)), ZERO).unwrap();
                say("ready");
                say(if half.trade(&fake, peers, 500) == expected(500, 7) { "right" } else { "wrong" });
                half.device.close_peer(peers).unwrap();
            }
            Some(("show", _)) => say(&format!("{:?}", &words(&half.device, half.mailbox).unwrap()[..4])),
            Some(("free", _)) => {
                half.device.free(half.mailbox).unwrap();
                say("freed");
            }
            _ => panic!("the peer is told `{line}`"),
        }
    }
    half.device.close().unwrap();
    assert_eq!(fake.live(), []);
}

#[test]
fn kernels_of_two_processes_wait_for_each_other() {
    let mut peer = Peer::start();
    let fake = Fake::new(1);
    let mut half = Half::new(&fake);
    let theirs = PeerHandle(to_handle(&peer.hear()));
    let world = fake.create_world(2);
    peer.tell(&format!("join {}", to_text(&world)));
    let peers = half.device.import_peer(&theirs, ZERO).unwrap();
    peer.tell(&format!("trade {}", to_text(&half.device.export_peer(half.mailbox).unwrap().0)));
    assert_eq!(peer.hear(), "ready");
    assert_eq!(half.trade(&fake, peers, 7), expected(7, 500));
    assert_eq!(peer.hear(), "right");
    // What is queued here is in the peer's memory once it has run.
    half.device.queue_write(ZERO, peers, &bytes(&[1, 2, 3, 4])).unwrap();
    half.device.synchronize().unwrap();
    peer.tell("show it");
    assert_eq!(peer.hear(), "[1, 2, 3, 4]");
    // Imported twice, closed twice, and no third time.
    let again = half.device.import_peer(&theirs, ZERO).unwrap();
    half.device.close_peer(again).unwrap();
    half.device.queue_write(ZERO, peers, &bytes(&[9])).unwrap();
    half.device.close_peer(peers).unwrap();
    assert!(matches!(half.device.close_peer(peers), Err(HipError::NotHeld { .. })));
    peer.tell("show it");
    assert_eq!(peer.hear(), "[9, 2, 3, 4]", "the end of an import waits for what is queued");
    peer.tell("free it");
    assert_eq!(peer.hear(), "freed");
    let error = half.device.import_peer(&theirs, ZERO).unwrap_err();
    assert!(error.to_string().starts_with("`hipIpcOpenMemHandle` of a peer's memory on rank 0 failed with"), "{error}");
    assert!(error.hint().contains("--ipc host --pid host --network host"));
    let own = half.device.export_peer(half.mailbox).unwrap();
    let error = half.device.import_peer(&own, ZERO).unwrap_err();
    assert!(matches!(error, HipError::Call { status: Status(201), .. }), "{error}");
    half.device.close().unwrap();
    assert_eq!(fake.live(), []);
}

#[test]
fn every_call_that_processes_share_memory_by_fails_in_turn() {
    let mut peer = Peer::start();
    let fake = Fake::new(1);
    let theirs = PeerHandle(to_handle(&peer.hear()));
    let scenario = || -> Result<(), HipError> {
        let mut device = HipDevice::new(&fake.hip(), &[0])?;
        let mailbox = device.allocate(ZERO, MemoryKind::Uncached, 1024, "mailbox")?;
        device.export_peer(mailbox)?;
        let closed = device.import_peer(&theirs, ZERO)?;
        device.import_peer(&theirs, ZERO)?;
        device.close_peer(closed)?;
        device.close()
    };
    let names = ["hipIpcGetMemHandle", "hipIpcOpenMemHandle", "hipIpcCloseMemHandle"];
    scenario().unwrap();
    let counts = names.map(|name| fake.count(name));
    assert_eq!(counts, [1, 2, 2]);
    for (name, count) in names.into_iter().zip(counts) {
        for nth in 1..=count {
            fake.reset();
            fake.fail(name, nth, 999);
            let text = scenario().unwrap_err().to_string();
            assert!(text.contains(&format!("`{name}`")), "{name} {nth}: {text}");
            assert!(text.ends_with("failed with hipErrorUnknown (999): unknown error"), "{name} {nth}: {text}");
            assert_eq!(fake.live(), [], "after call {nth} of `{name}` failed");
        }
    }
}
