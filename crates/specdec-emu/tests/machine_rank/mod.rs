//! A rank as a process of its own: the test binary starts itself again, and both talk in lines.
#![allow(clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use specdec_core::device::{Device, MemoryKind, PeerHandle, PEER_HANDLE_BYTES};
use specdec_core::ids::{DeviceAddress, Rank};
use specdec_emu::machine::{Emulator, ModuleHandle, Options, Stall};

use crate::machine_rig::{launch, read_words, Kernarg};

/// Says that this process is a rank, and what it is to do.
const ROLE: &str = "SPECDEC_TEST_ROLE";
/// Lines of a rank begin so; the test harness prints others.
const MARK: &str = "@";
/// Workgroups of an exchange, and its pairs.
pub const GROUPS: u32 = 4;
pub const PAIRS: usize = GROUPS as usize * 64;

fn to_hex(handle: &PeerHandle) -> String {
    handle.0.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn from_hex(text: &str) -> PeerHandle {
    let mut handle = PeerHandle([0; PEER_HANDLE_BYTES]);
    for (at, byte) in handle.0.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("a handle in hexadecimal");
    }
    handle
}

/// What this process is to do, if it is a rank.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// A rank's line to the test.
pub fn say(line: &str) {
    // Before it, the harness may have left a line unfinished.
    let mut out = std::io::stdout();
    writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush()).expect("the test reads");
}

/// The test's next line to a rank; empty when the test has ended.
pub fn hear() -> String {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("the test writes lines");
    line.trim().to_owned()
}

/// The test's side of a rank's process; killed when dropped.
pub struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    /// Starts this test binary as a rank: the test `entry`, which looks at [`role`], runs there alone.
    pub fn start(entry: &str, role: &str) -> Self {
        let binary = std::env::current_exe().expect("this binary");
        let mut command = Command::new(binary);
        command.args(["--exact", entry, "--nocapture", "--test-threads=1"]).env(ROLE, role);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the rank starts");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdin, stdout }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush()).expect("the rank reads");
    }

    pub fn say_handle(&mut self, handle: &PeerHandle) {
        self.say(&to_hex(handle));
    }

    /// The rank's next line.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).expect("the rank writes lines") > 0 {
            if let Some(said) = line.strip_prefix(MARK) {
                return said.trim().to_owned();
            }
            line.clear();
        }
        panic!("the rank has ended without a word");
    }

    pub fn hear_handle(&mut self) -> PeerHandle {
        from_hex(&self.hear())
    }

    /// SIGKILL, and no trace left.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status();
        assert!(sent.expect("kill starts").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One rank's emulator with what an exchange needs.
pub struct Side {
    pub emulator: Emulator,
    pub module: ModuleHandle,
    pub mailbox: DeviceAddress,
    pub peers: DeviceAddress,
    pub out: DeviceAddress,
}

impl Side {
    /// Memory and code, the peer's still missing.
    pub fn new(code: &[u8], stall: Stall, seed: u64) -> Self {
        let mut emulator = Emulator::new(Options { stall, seed, quantum: 200, ..Options::default() });
        let module = emulator.load(code).expect("our code");
        let mailbox = emulator.allocate(Rank(0), MemoryKind::Uncached, 16384, "mailbox").expect("memory");
        let out = emulator.allocate(Rank(0), MemoryKind::Device, 4 * PAIRS as u64, "out").expect("memory");
        Self { emulator, module, mailbox, peers: DeviceAddress::NULL, out }
    }

    /// The rank's side of [`meet`], in its process.
    pub fn join(code: &[u8], stall: Stall, seed: u64) -> Self {
        let mut side = Self::new(code, stall, seed);
        say(&to_hex(&side.emulator.export_peer(side.mailbox).expect("uncached memory")));
        side.emulator.join_world(&from_hex(&hear()), 1).expect("place 1 is ours");
        side.peers = side.emulator.import_peer(&from_hex(&hear()), Rank(0)).expect("the test's mailbox");
        say("ready");
        side
    }

    /// Makes a world with a rank's process, and each reaches the other's mailbox.
    pub fn meet(code: &[u8], stall: Stall, rank: &mut Process) -> Self {
        let mut side = Self::new(code, stall, 1);
        let handle = rank.hear_handle();
        let world = side.emulator.create_world(2).expect("a world");
        rank.say_handle(&world);
        rank.say_handle(&side.emulator.export_peer(side.mailbox).expect("uncached memory"));
        side.peers = side.emulator.import_peer(&handle, Rank(0)).expect("the rank's mailbox");
        assert_eq!(rank.hear(), "ready");
        side
    }

    /// Queues an exchange.
    pub fn swap(&mut self, rounds: u32, seed: u32, work: u32, limit: u32) {
        let arguments = Kernarg::new().pointer(self.mailbox).pointer(self.peers).pointer(self.out);
        let arguments = arguments.word(rounds).word(seed).word(work).word(limit);
        launch(&mut self.emulator, 0, self.module, "swap_or_give_up", (GROUPS, 64), arguments).expect("it fits");
    }

    /// What the exchange left.
    pub fn values(&self) -> Vec<u32> {
        read_words(&self.emulator, self.out, PAIRS)
    }
}
