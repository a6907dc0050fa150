//! `model`: explores the small worlds.

use super::out::{note, say};
use clap::Args;
use ringfence_sim::model::{controls, worlds};
use std::process::ExitCode;
use std::time::Duration;

/// Explore every interleaving of small worlds around the shipped core.
#[derive(Debug, Args)]
pub(crate) struct Model {
    /// Only this world. Those without a rule are found by their names too, and are expected to come to harm.
    #[arg(long)]
    world: Option<String>,
    /// The worlds without a rule, too.
    #[arg(long)]
    controls: bool,
    /// Cut a world off after so many seconds.
    #[arg(long, default_value_t = 300)]
    seconds: u64,
}

impl Model {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let limit = Some(Duration::from_secs(self.seconds));
        let wanted = |name: &str| self.world.as_ref().is_none_or(|world| world == name);
        let mut found = false;
        let mut held = true;
        let mut cut_off = Vec::new();
        for small in worlds::all().into_iter().filter(|small| wanted(small.name)) {
            found = true;
            say!("{}: {}", small.name, small.rules)?;
            let report = small.explore(limit);
            say!("{report}")?;
            held &= report.proves();
            cut_off.extend(report.is_cut_off().then_some(small.name));
        }
        let controls = controls::all()
            .into_iter()
            .filter(|control| self.controls || self.world.as_deref() == Some(control.small.name));
        for control in controls.filter(|control| wanted(control.small.name)) {
            found = true;
            say!("{}: {}", control.small.name, control.small.rules)?;
            let report = control.small.explore(limit);
            say!("{report}")?;
            cut_off.extend(report.is_cut_off().then_some(control.small.name));
            held &= self.world.is_none()
                && report.violation.is_some_and(|violation| violation.property == control.breaks);
        }
        if !found {
            let worlds = worlds::all().into_iter().map(|small| small.name);
            let controls = controls::all().into_iter().map(|control| control.small.name);
            let names: Vec<&str> = worlds.chain(controls).collect();
            anyhow::bail!("there is no such world; there are {}", names.join(", "));
        }
        if !cut_off.is_empty() {
            let (worlds, seconds) = (cut_off.join(", "), self.seconds);
            note(format_args!(
                "cut off after {seconds} s, which proves nothing: {worlds}; give more --seconds"
            ));
        }
        Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
