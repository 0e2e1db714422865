//! A small Linux in an emulated machine, in which uhyve runs where this host's KVM cannot run
//! guests. It is booted once and runs many images.
//!
//! The tool and the Linux talk over a virtual serial device with three ports: requests and their
//! answers, the output of uhyve, and a debugger's bytes. `init.sh` is the other end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::bridge::bridge;
use super::initramfs;
use super::job::Job;
use super::parts::Parts;
use crate::run::os::{Start, arrange};
use crate::run::run_directory::RunDirectory;
use crate::spec::MIB;

/// Memory that Linux and uhyve take beside the guest's.
const OWN_BYTES: u64 = 512 * MIB;

/// How long a Linux may take to boot or to answer: not a measure of anything, but a machine that
/// hangs must not hang the tool.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long an end is waited for before the next attempt.
const KILL_STEP: Duration = Duration::from_millis(500);

/// The processor has AMD's virtualisation. Without XSAVE, because emulated nested virtualisation
/// loses its control register across exits, and the guest its vectors.
const CPU: &str = "EPYC,-xsave";

/// Nobody sits at this machine's console, and the host may be too loaded for its clock checks.
const COMMAND_LINE: &str = "console=ttyS0 panic=-1 oops=panic loglevel=4 no_timer_check tsc=reliable nokaslr mitigations=off random.trust_cpu=on nowatchdog";

/// The memory of a Linux with room for guests of `guest_bytes` and for `file_bytes` of files.
pub(super) fn memory(guest_bytes: u64, file_bytes: u64) -> u64 {
    guest_bytes + 2 * file_bytes + OWN_BYTES
}

/// A Linux that runs.
#[derive(Debug)]
pub(in crate::run) struct Nested {
    qemu: Qemu,
    control: BufReader<UnixStream>,
    console: UnixStream,
    memory: u64,
    /// The debugger's port.
    gdb: UnixStream,
    jobs: u32,
}

impl Nested {
    /// Boots a Linux with so many bytes of [`memory`].
    pub(super) fn boot(qemu: &Path, parts: &Parts, memory: u64) -> Result<Self> {
        let directory = RunDirectory::new()?;
        let at = |name: &str| directory.path.join(name);
        let mut archive =
            fs::File::create(at("initramfs")).context("cannot write the initramfs")?;
        initramfs::write(parts, &mut archive).context("cannot write the initramfs")?;
        let mut command = Command::new(qemu);
        command
            .args([
                "-nodefaults",
                "-no-user-config",
                "-no-reboot",
                "-display",
                "none",
            ])
            .args([
                "-accel",
                "tcg,thread=multi",
                "-machine",
                "pc",
                "-cpu",
                CPU,
                "-smp",
                "1",
            ])
            .args(["-m", &format!("{}M", memory.div_ceil(MIB))])
            .args(["-serial", "file:linux.log", "-initrd", "initramfs"])
            .args(["-append", COMMAND_LINE])
            .args(["-device", "virtio-serial-pci"])
            .args([
                "-chardev",
                "socket,id=control,path=control,server=on,wait=off",
            ])
            .args(["-device", "virtserialport,chardev=control"])
            .args([
                "-chardev",
                "socket,id=console,path=console,server=on,wait=off",
            ])
            .args(["-device", "virtserialport,chardev=console"])
            .args(["-chardev", "socket,id=gdb,path=gdb,server=on,wait=off"])
            .args(["-device", "virtserialport,chardev=gdb"])
            .arg("-kernel")
            .arg(&parts.kernel)
            .current_dir(&directory.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        // An interrupt is for the tool to handle, which can still ask this machine to end its run.
        let start_apart = Start {
            own_group: true,
            ..Start::default()
        };
        arrange(&mut command, start_apart);
        let mut qemu = Qemu::start(command)?;
        let console = qemu.connect(&at("console"))?;
        let control = qemu.connect(&at("control"))?;
        let gdb = qemu.connect(&at("gdb"))?;
        control.set_read_timeout(Some(PATIENCE))?;
        let mut nested = Self {
            qemu,
            control: BufReader::new(control),
            console,
            memory,
            gdb,
            jobs: 0,
        };
        let hello = nested.line();
        if hello.as_deref().ok() != Some("ready") {
            let log = fs::read(at("linux.log")).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let last = log.lines().rev().find(|line| !line.trim().is_empty());
            bail!(
                "the Linux for uhyve does not boot (its last words: {})",
                last.unwrap_or("none").trim()
            );
        }
        Ok(nested)
    }

    /// Whether it has so much [`memory`], and still runs.
    pub(super) fn serves(&mut self, memory: u64) -> bool {
        memory <= self.memory && matches!(self.qemu.0.try_wait(), Ok(None))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.control
            .read_line(&mut line)
            .context("the Linux for uhyve does not answer")?;
        match line.strip_suffix('\n') {
            Some(line) => Ok(line.to_owned()),
            None => bail!("the Linux for uhyve has stopped"),
        }
    }

    fn send(&mut self, request: &str, payload: &[u8]) -> Result<()> {
        let stream = self.control.get_mut();
        stream
            .write_all(format!("{request}\n").as_bytes())
            .and_then(|()| stream.write_all(payload))
            .context("the Linux for uhyve does not listen")
    }

    /// Makes a request that ends well.
    fn ask(&mut self, request: &str, payload: &[u8]) -> Result<()> {
        self.send(request, payload)?;
        match self.line()?.as_str() {
            "done 0" => Ok(()),
            answer => bail!("the Linux for uhyve cannot {request}: {answer}"),
        }
    }

    /// Removes what earlier jobs left.
    pub(super) fn clean(&mut self) -> Result<()> {
        self.ask("clean", &[])
    }

    /// Writes a file.
    pub(super) fn put(&mut self, path: &str, contents: &[u8]) -> Result<()> {
        self.ask(&format!("put {path} {}", contents.len()), contents)
    }

    /// Makes a folder of a tar archive.
    pub(super) fn unpack(&mut self, path: &str, archive: &[u8]) -> Result<()> {
        self.ask(&format!("unpack {path} {}", archive.len()), archive)
    }

    /// Reads a file, if it is there.
    pub(in crate::run) fn get(&mut self, path: &str) -> Result<Option<Vec<u8>>> {
        self.send(&format!("get {path}"), &[])?;
        let answer = self.line()?;
        if answer == "none" {
            return Ok(None);
        }
        let size = answer
            .parse()
            .with_context(|| format!("the Linux for uhyve answers '{answer}'"))?;
        let mut contents = vec![0; size];
        self.control
            .read_exact(&mut contents)
            .context("the Linux for uhyve does not send all of a file")?;
        Ok(Some(contents))
    }

    /// What uhyve has written to standard error so far.
    pub(in crate::run) fn complaint(&mut self) -> Result<String> {
        let complaint = self.get("/tmp/complaint")?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&complaint).trim().to_owned())
    }

    /// Reads a folder as a tar archive.
    pub(super) fn pack(&mut self, path: &str) -> Result<Vec<u8>> {
        self.ask(&format!("pack {path}"), &[])?;
        let archive = self.get("/tmp/packed")?;
        archive.context("the Linux for uhyve has packed nothing")
    }

    /// Starts uhyve with these arguments.
    pub(super) fn start(&mut self, arguments: &[String]) -> Result<Job> {
        self.jobs += 1;
        let token = format!("dolmen-{}-{}", std::process::id(), self.jobs);
        let script = format!("exec /bin/uhyve {}\n", shell_words::join(arguments));
        self.put("/job/run", script.as_bytes())?;
        let job = Job::new(self.console.try_clone()?, &token);
        self.ask(&format!("start {token}"), &[])?;
        Ok(job)
    }

    /// Makes sure that `job` ends. One that is over has a moment to end by itself; one that has not
    /// yet become uhyve is not found the first time.
    pub(in crate::run) fn kill(&mut self, job: &Job) -> Result<()> {
        let begin = Instant::now();
        while !job.ends_within(KILL_STEP) {
            if begin.elapsed() > PATIENCE {
                bail!("uhyve cannot be ended");
            }
            self.send("kill", &[])?;
            self.line()?;
        }
        Ok(())
    }

    /// Joins `port` in the Linux to one of this host, which is returned.
    pub(super) fn bridge(&mut self, port: u16) -> Result<u16> {
        let stream = self.gdb.try_clone().context("cannot share a socket")?;
        self.ask(&format!("bridge {port}"), &[])?;
        bridge(stream)
    }

    /// Ends what [`Nested::bridge`] made: a debugger sees its connection end.
    pub(in crate::run) fn unbridge(&self) {
        // It fails only if it has ended already.
        let _ = self.gdb.shutdown(Shutdown::Both);
    }
}

/// The emulator. It does not outlive this value.
#[derive(Debug)]
struct Qemu(Child);

impl Qemu {
    /// Starts it from a thread that lives as long as the tool: the machine ends when the thread
    /// that started it does, and it is to outlive the run that needed it first.
    fn start(mut command: Command) -> Result<Self> {
        let (sender, receiver) = sync_channel(1);
        std::thread::spawn(move || {
            // Nobody listens any more only if the tool is ending.
            let _ = sender.send(command.spawn());
            loop {
                std::thread::park();
            }
        });
        let child = receiver.recv().context("QEMU cannot be started")?;
        child.context("QEMU cannot be started").map(Self)
    }

    /// Connects to a socket that it makes in its first moments.
    fn connect(&mut self, path: &Path) -> Result<UnixStream> {
        let begin = Instant::now();
        loop {
            if let Ok(stream) = UnixStream::connect(path) {
                return Ok(stream);
            }
            if let Some(status) = self.0.try_wait()? {
                let mut said = String::new();
                if let Some(mut stderr) = self.0.stderr.take() {
                    // Half a message is better than none.
                    let _ = stderr.read_to_string(&mut said);
                }
                let said = said.trim().lines().last().unwrap_or_default().to_owned();
                bail!("QEMU cannot make the machine for uhyve ({status}): {said}");
            }
            if begin.elapsed() > PATIENCE {
                bail!("QEMU does not start");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
