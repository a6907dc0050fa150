//! From settings as they were given to settings that can work together.

use super::error::{SettingsError, shown};
use super::founders::{Founders, check_address};
use super::given::Given;
use super::{DEFAULT_PORT, LogFormat, LogSettings, Membership, Settings, Storage, secret};
use crate::raft::{Compaction, Timings};
use ringfence_core::ids::NodeId;
use ringfence_core::lead;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How often workers tell the loads of their partitions at the most and at the least.
const MIN_MEASURE: Duration = Duration::from_millis(100);
const MAX_MEASURE: Duration = Duration::from_secs(3_600);

impl Given {
    /// Checks the settings as a whole.
    ///
    /// # Errors
    /// [`SettingsError`] for the first that is missing, wrong, or disagrees with another.
    pub fn check(self) -> Result<Settings, SettingsError> {
        let node = self.node()?;
        let listen = match &self.listen {
            Some(text) => listen_address(text)?,
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)),
        };
        let (membership, advertise) = self.membership(node, listen)?;
        let mut warnings = Vec::new();
        let secret = match &self.cluster_secret_file {
            Some(path) => {
                let (secret, warning) = secret::read(path)?;
                warnings.extend(warning);
                Some(secret)
            }
            None => None,
        };
        guarded(listen, self.insecure == Some(true), secret.is_some())?;
        if self.insecure == Some(true) && !listen.ip().is_loopback() {
            warnings.push(format!(
                "traffic at {listen} is not encrypted, and every client there is let in (insecure)"
            ));
        }
        let missing = SettingsError::Missing {
            name: "data-dir",
            hint: "give the directory where this node keeps its data; one without data is `ringfence dev`",
        };
        let data_dir = self.data_dir.clone().ok_or(missing)?;
        Ok(Settings {
            node,
            listen,
            advertise: Some(advertise),
            storage: Storage::Dir(data_dir),
            membership,
            secret,
            timings: self.timings()?,
            compaction: self.compaction()?,
            placing: self.placing()?,
            request_timeout: Duration::from_secs(5),
            log: self.log_settings()?,
            warnings,
        })
    }

    fn node(&self) -> Result<NodeId, SettingsError> {
        let missing = SettingsError::Missing { name: "node", hint: "give this node its id, such as 1" };
        let number = self.node.ok_or(missing)?;
        NodeId::new(number).map_err(|e| SettingsError::Value {
            name: "node",
            value: number.to_string(),
            why: e.to_string(),
        })
    }

    /// How the node comes to belong to a cluster, and the address it tells.
    fn membership(&self, node: NodeId, listen: SocketAddr) -> Result<(Membership, String), SettingsError> {
        if let Some(advertise) = &self.advertise {
            check_address(advertise).map_err(|why| SettingsError::Value {
                name: "advertise",
                value: shown(advertise),
                why,
            })?;
        }
        let joins = self.join == Some(true);
        let listed = self.cluster.as_ref().filter(|entries| !entries.is_empty());
        match (listed, joins) {
            (Some(_), true) => Err(SettingsError::JoinAndCluster),
            (None, false) => Err(SettingsError::Missing {
                name: "cluster",
                hint: "list the nodes that form the cluster as ID=HOST:PORT, this one among them, or set join to be \
                       added to a cluster that exists",
            }),
            (None, true) => {
                let advertise = self.advertise.clone().unwrap_or_else(|| listen.to_string());
                if listen.ip().is_unspecified() && self.advertise.is_none() || advertise.ends_with(":0") {
                    return Err(SettingsError::NoAdvertise(listen));
                }
                Ok((Membership::Join, advertise))
            }
            (Some(entries), false) => {
                let founders = Founders::parse(entries.iter().map(String::as_str))?;
                let own = founders.address(node).ok_or_else(|| SettingsError::NotListed {
                    node: node.get(),
                    listed: founders.to_string(),
                })?;
                if let Some(advertise) = self.advertise.as_ref().filter(|advertise| *advertise != own) {
                    let (advertise, listed) = (advertise.clone(), own.to_owned());
                    return Err(SettingsError::TwoAddresses { advertise, listed });
                }
                let own = own.to_owned();
                Ok((Membership::Found(founders), own))
            }
        }
    }

    fn timings(&self) -> Result<Timings, SettingsError> {
        let default = Timings::default();
        let timings = Timings {
            heartbeat: ms(self.heartbeat_ms, default.heartbeat),
            election_min: ms(self.election_min_ms, default.election_min),
            election_max: ms(self.election_max_ms, default.election_max),
            install_snapshot: default.install_snapshot,
        };
        const LONGEST: Duration = Duration::from_secs(60);
        if timings.election_max > LONGEST {
            return Err(SettingsError::Value {
                name: "election-max-ms",
                value: timings.election_max.as_millis().to_string(),
                why: "it is at most 60000: for so long nobody leads after a leader has died".to_owned(),
            });
        }
        timings.check().map_err(|e| SettingsError::Raft(e.to_string()))?;
        Ok(timings)
    }

    fn compaction(&self) -> Result<Compaction, SettingsError> {
        let default = Compaction::default();
        let compaction = Compaction {
            entries: self.snapshot_entries.unwrap_or(default.entries),
            bytes: self.snapshot_bytes.unwrap_or(default.bytes),
            every: ms(self.snapshot_every_ms, default.every),
            keep: self.snapshot_keep_entries.unwrap_or(default.keep),
        };
        compaction.check().map_err(|e| SettingsError::Raft(e.to_string()))?;
        Ok(compaction)
    }

    fn placing(&self) -> Result<lead::Settings, SettingsError> {
        let default = lead::Settings::default();
        let measure_every = ms(self.measure_every_ms, default.measure_every);
        if !(MIN_MEASURE..=MAX_MEASURE).contains(&measure_every) {
            return Err(SettingsError::Value {
                name: "measure-every-ms",
                value: measure_every.as_millis().to_string(),
                why: "it is 100 to 3600000: a load is the mean of so long, and every worker tells its loads as often"
                    .to_owned(),
            });
        }
        let brake = self.brake_percent.map_or(Ok(default.brake), |percent| match percent {
            1..=100 => Ok(lead::Share::percent(percent)),
            _ => Err(SettingsError::Value {
                name: "brake-percent",
                value: percent.to_string(),
                why: "it is 1 to 100: of so many sessions in a hundred more have to be lost together; 100 is never".to_owned(),
            }),
        })?;
        Ok(lead::Settings {
            settle: ms(self.settle_ms, default.settle),
            cool_down: ms(self.cool_down_ms, default.cool_down),
            measure_every,
            brake,
        })
    }

    fn log_settings(&self) -> Result<LogSettings, SettingsError> {
        let default = LogSettings::default();
        Ok(LogSettings {
            filter: self.log.clone().unwrap_or(default.filter),
            format: self.log_format.as_deref().map_or(Ok(default.format), str::parse::<LogFormat>)?,
        })
    }
}

fn ms(given: Option<u64>, default: Duration) -> Duration {
    given.map_or(default, Duration::from_millis)
}

/// An address to listen on. A name is not resolved: it could stand for an address that others can reach.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, SettingsError> {
    let wrong = |why: &str| SettingsError::Value { name: "listen", value: shown(text), why: why.to_owned() };
    if let Some(port) = text.strip_prefix("localhost:") {
        let port = port.parse().map_err(|_| wrong("the port is not a number from 0 to 65535"))?;
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    text.parse().map_err(|_| {
        wrong("it is an IP address and a port, such as 127.0.0.1:7600 or 0.0.0.0:7600; a name goes into advertise")
    })
}

/// Where others can reach the node, an operator has said so, and nodes prove to each other that they belong together.
pub(super) fn guarded(listen: SocketAddr, insecure: bool, secret: bool) -> Result<(), SettingsError> {
    if listen.ip().is_loopback() {
        return Ok(());
    }
    if !insecure {
        return Err(SettingsError::Insecure(listen));
    }
    if !secret {
        return Err(SettingsError::NoSecret(listen));
    }
    Ok(())
}
