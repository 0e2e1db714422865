//! A debug server of a guest that counts up an instruction pointer and knows no breakpoints.

use std::thread::JoinHandle;

use super::*;

const CODE: [u8; 4] = [0x55, 0x53, 0x90, 0xc3];
const START: u64 = 0x1000;

/// Serves until the debugger has gone; returns the code in the end.
fn server(stream: UnixStream) -> JoinHandle<[u8; 4]> {
    std::thread::spawn(move || {
        let mut peer = Peer::new(stream);
        let mut code = CODE;
        let mut rip = START;
        let mut runs = false;
        loop {
            let event = match peer.receive(Some(TICK)) {
                Ok(event) => event,
                Err(_) => return code,
            };
            let looped = |code: &[u8; 4]| code[(rip - START) as usize..].starts_with(&[0xeb, 0xfe]);
            if runs && !looped(&code) && rip < START + 2 {
                rip += 1;
            }
            let answer = match event {
                None => continue,
                Some(Event::Interrupt) => {
                    assert!(runs);
                    runs = false;
                    "T02thread:01;".to_owned()
                }
                Some(Event::Packet(request)) => {
                    let request = String::from_utf8(request).unwrap();
                    let at = |rest: &str| {
                        let (address, _) = rest.split_once(',').unwrap();
                        (u64::from_str_radix(address, 16).unwrap() - START) as usize
                    };
                    if request.starts_with("vCont") {
                        runs = true;
                        continue;
                    } else if let Some(rest) = request.strip_prefix('m') {
                        match code.get(at(rest)..at(rest) + 2) {
                            Some(bytes) => format!("{:02x}{:02x}", bytes[0], bytes[1]),
                            None => "E02".to_owned(),
                        }
                    } else if let Some(rest) = request.strip_prefix('M') {
                        let digits = rest.split_once(':').unwrap().1;
                        let value = u16::from_str_radix(digits, 16).unwrap();
                        code[at(rest)..at(rest) + 2].copy_from_slice(&value.to_be_bytes());
                        "OK".to_owned()
                    } else if request == "g" {
                        format!("{}{:016x}", "0".repeat(256), rip.swap_bytes())
                    } else {
                        format!("echo {request}")
                    }
                }
            };
            peer.send(answer.as_bytes()).unwrap();
        }
    })
}

struct Debugger {
    peer: Peer<UnixStream>,
    server: JoinHandle<[u8; 4]>,
}

impl Debugger {
    fn new() -> Self {
        let (gdb, near) = UnixStream::pair().unwrap();
        let (far, uhyve) = UnixStream::pair().unwrap();
        let bridge = Bridge {
            gdb: Peer::new(near),
            uhyve: Peer::new(far),
            loops: BTreeMap::new(),
        };
        std::thread::spawn(move || bridge.serve());
        Self {
            peer: Peer::new(gdb),
            server: server(uhyve),
        }
    }

    fn answer(&mut self) -> String {
        match self.peer.receive(None).unwrap() {
            Some(Event::Packet(answer)) => String::from_utf8(answer).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, request: &str) -> String {
        self.peer.send(request.as_bytes()).unwrap();
        self.answer()
    }
}

#[test]
fn a_breakpoint_is_a_loop_that_the_guest_comes_to() {
    let mut gdb = Debugger::new();
    assert_eq!(gdb.ask("Z0,1001,1"), "OK");
    assert_eq!(gdb.ask("m1001,2"), "ebfe");
    assert_eq!(gdb.ask("vCont;c:p1.-1"), "T05swbreak:;thread:01;");
    assert_eq!(gdb.ask("z0,1001,1"), "OK");
    assert_eq!(gdb.ask("m1001,2"), "5390");
    let server = gdb.server;
    drop(gdb.peer);
    assert_eq!(server.join().unwrap(), CODE);
}

#[test]
fn an_interrupt_of_the_user_stops_the_guest_wherever_it_is() {
    let mut gdb = Debugger::new();
    gdb.peer.send(b"vCont;c").unwrap();
    gdb.peer.interrupt().unwrap();
    assert_eq!(gdb.answer(), "T02thread:01;");
}

#[test]
fn other_requests_are_carried_and_places_without_memory_refused() {
    let mut gdb = Debugger::new();
    assert_eq!(gdb.ask("qOffsets"), "echo qOffsets");
    assert_eq!(gdb.ask("Z1,1003,1"), "E01");
    assert_eq!(gdb.ask("Z2,1001,1"), "echo Z2,1001,1");
    assert_eq!(gdb.ask("z0,1001,1"), "OK");
}
