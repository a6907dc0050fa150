//! Servers of this run's own: on free ports of the loopback, in temporary folders, and gone with the run.

use anyhow::{Context as _, Result};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Three nodes of something.
pub struct Cluster {
    nodes: Vec<Child>,
    _dir: tempfile::TempDir,
}

impl Cluster {
    pub fn new(dir: tempfile::TempDir) -> Cluster {
        Cluster { nodes: Vec::new(), _dir: dir }
    }

    /// Starts one node; what it says goes to a file in its folder.
    pub fn start(&mut self, command: &mut Command, log: &Path) -> Result<()> {
        let (out, err) = (File::create(log)?, File::options().append(true).open(log)?);
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        self.nodes.push(child.with_context(|| format!("{:?} does not start", command.get_program()))?);
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            drop(node.kill());
            drop(node.wait());
        }
    }
}

/// Ports that nobody listens on now.
pub fn free_ports(count: usize) -> Result<Vec<u16>> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<_>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// A program on the path.
pub fn program(name: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    found.with_context(|| {
        format!("there is no {name}: install it (Debian: {package}), or leave it out with --peers")
    })
}
