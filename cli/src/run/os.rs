//! The few things a process can only be asked for by system call.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// What is to hold for a process from its start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Start {
    /// No transparent huge pages.
    pub(super) thp_disabled: bool,
    /// Only the first so many CPUs.
    pub(super) cpus: Option<usize>,
    /// Apart from the terminal's Ctrl-C, which then reaches the tool alone.
    pub(super) own_group: bool,
}

/// Arranges for `command` to start like this, and to die with the tool.
pub(super) fn arrange(command: &mut Command, start: Start) {
    let prepare = move || -> io::Result<()> {
        // SAFETY: prctl with these operations takes integers only.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
        if start.own_group {
            // SAFETY: setpgid takes integers only; zeros mean this process.
            check(unsafe { libc::setpgid(0, 0) })?;
        }
        if start.thp_disabled {
            // SAFETY: as above; the unused arguments must be zero.
            check(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) })?;
        }
        if let Some(cpus) = start.cpus {
            restrict(cpus)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls: it allocates nothing and
    // takes no lock.
    unsafe { command.pre_exec(prepare) };
}

fn restrict(cpus: usize) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is a valid, exclusively borrowed object of the size given; 0 is this process.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &raw mut allowed) })?;
    let mut left = cpus;
    for cpu in 0..libc::CPU_SETSIZE as usize {
        // SAFETY: `cpu` is below CPU_SETSIZE, the number of bits of the set.
        unsafe {
            if libc::CPU_ISSET(cpu, &allowed) {
                if left == 0 {
                    libc::CPU_CLR(cpu, &mut allowed);
                } else {
                    left -= 1;
                }
            }
        }
    }
    // SAFETY: the set is a valid object of the size given; 0 is this process.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&allowed), &raw const allowed) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// What the kernel accounted for a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    pub(super) user: Duration,
    pub(super) system: Duration,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    pub(super) voluntary_switches: u64,
    pub(super) involuntary_switches: u64,
}

/// Reaps `child` if it has ended.
pub(super) fn try_wait(child: &Child) -> io::Result<Option<(ExitStatus, Usage)>> {
    use std::os::unix::process::ExitStatusExt;
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: all-zero is a valid rusage: it holds integers only.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals; the child is ours and not reaped, because its owner
    // hands it in and calls no other wait.
    let result = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
    check(result)?;
    if result == 0 {
        return Ok(None);
    }
    let duration = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    let usage = Usage {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
        voluntary_switches: usage.ru_nvcsw as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
    };
    Ok(Some((ExitStatus::from_raw(status), usage)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(child: &Child) -> (ExitStatus, Usage) {
        loop {
            if let Some(result) = try_wait(child).unwrap() {
                return result;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_process_starts_as_arranged_and_is_accounted() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "test \"$(nproc)\" = 1 && grep -q '^THP_enabled:.0' /proc/$$/status && set $(cat /proc/$$/stat) && test $5 = $$",
        ]);
        arrange(
            &mut command,
            Start {
                thp_disabled: true,
                cpus: Some(1),
                own_group: true,
            },
        );
        let mut child = command.spawn().unwrap();
        let (status, usage) = wait(&child);
        // It is reaped already: there is nothing left to wait for.
        assert!(child.wait().is_err());
        assert!(status.success(), "{status}");
        assert!(usage.minor_faults > 0);
    }
}
