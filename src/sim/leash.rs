//! Processes that end when this one does, however it ends.

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The kernel kills what this command starts when the thread that starts it ends. So that thread has to wait for it.
pub(crate) fn leash(command: &mut Command) -> &mut Command {
    let runner: Pid = getpid();
    let tie = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before that was known.
        if getppid() == Some(runner) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec it makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(tie) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::process::Stdio;

    /// A thread's end stands for a process's: to the kernel it is the same.
    #[test]
    fn a_process_ends_with_whoever_started_it() {
        let start = || leash(Command::new("sleep").arg("600").stdout(Stdio::piped())).spawn().unwrap();
        let mut child = std::thread::spawn(start).join().unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(!child.wait().unwrap().success());
    }
}
