//! What a server says of itself, and whether it can hold a fence.

use super::commands::unfit;
use super::failure::{failed, shown};
use super::options::Loss;
use crate::FenceError;
use redis::aio::ConnectionLike;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use std::collections::HashMap;

/// The oldest version whose scripts are refused as a whole, before they run, where they may not write.
const OLDEST: u32 = 7;

/// What INFO says.
pub(super) struct Server(HashMap<String, String>);

impl Server {
    pub(super) async fn of(conn: &mut (impl ConnectionLike + Send)) -> Result<Server, FenceError> {
        let doing = "asking the server about itself (INFO)";
        let info: Value = redis::cmd("INFO").query_async(conn).await.map_err(failed(doing))?;
        match info {
            Value::BulkString(text) => Ok(Server::read(&String::from_utf8_lossy(&text))),
            Value::VerbatimString { text, .. } | Value::SimpleString(text) => Ok(Server::read(&text)),
            _ => Err(unfit(
                "several servers answered for one: in a cluster, install the fence through a plain connection to each \
                 primary, and then write through the cluster's connection",
            )),
        }
    }

    fn read(info: &str) -> Server {
        let pairs = info.lines().filter_map(|line| line.split_once(':'));
        Server(pairs.map(|(name, value)| (name.to_string(), value.trim_end().to_string())).collect())
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.get("cluster_enabled") == "1"
    }

    /// Refuses a server that cannot hold a fence, whatever it is set to.
    pub(super) fn must_be_able(&self, detecting: bool) -> Result<(), FenceError> {
        let version = self.get("redis_version");
        let major = version.split('.').next().and_then(|digits| digits.parse::<u32>().ok());
        if major.is_none_or(|major| major < OLDEST) {
            return Err(unfit(&format!(
                "the server says that it is Redis \"{}\", and the fence needs Redis {OLDEST}.0 or Valkey 7.2 at least",
                shown(version)
            )));
        }
        if self.get("role") != "master" {
            return Err(unfit("this server is a replica, and a fence lives on the primary: connect to that"));
        }
        if detecting && self.get("master_replid").is_empty() {
            return Err(unfit(
                "the server does not tell its replication id (INFO replication), so nobody would notice that a failover or \
                 a restore has taken the fence back; who takes that says RedisOptions::without_detecting_replacement",
            ));
        }
        Ok(())
    }

    /// Refuses settings under which the server drops a fence, or forgets a raise that it has answered.
    pub(super) async fn must_keep(
        &self,
        conn: &mut (impl ConnectionLike + Send),
        accepted: Loss,
        stated: bool,
    ) -> Result<(), FenceError> {
        let mut settings = Settings::asked(conn, stated).await?;
        // Told also where CONFIG is not.
        settings.0.entry("maxmemory-policy".into()).or_insert_with(|| self.get("maxmemory_policy").into());
        settings.must_keep(accepted, stated)
    }
}

/// What CONFIG says; nothing where it may not be asked.
struct Settings(HashMap<String, String>);

impl Settings {
    async fn asked(conn: &mut (impl ConnectionLike + Send), stated: bool) -> Result<Settings, FenceError> {
        let names = ["maxmemory-policy", "appendonly", "appendfsync", "no-appendfsync-on-rewrite"];
        match redis::cmd("CONFIG").arg("GET").arg(&names).query_async(conn).await {
            Ok(settings) => Ok(Settings(settings)),
            Err(error) if hidden(&error) && stated => Ok(Settings(HashMap::new())),
            Err(error) if hidden(&error) => Err(unfit(&format!(
                "the server does not let its settings be read (CONFIG GET: {}): let this user read them (+config|get), or, \
                 where you know that every answered write is on disk and no key without a time to live is ever evicted, \
                 say so with RedisOptions::stating_durable_settings",
                shown(&error.to_string())
            ))),
            Err(error) => Err(failed("reading the server's settings")(error)),
        }
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn must_keep(&self, accepted: Loss, stated: bool) -> Result<(), FenceError> {
        let refused = |name: &str, needed| {
            let found = format!("{name} is \"{}\"", shown(self.get(name)));
            Err(FenceError::NotDurable { setting: found, needed })
        };
        // A fence has no time to live, and is refused when it gets one, so what is evicted by that is something else.
        if self.get("maxmemory-policy").starts_with("allkeys") {
            return refused(
                "maxmemory-policy",
                "maxmemory-policy noeviction (or volatile-*, which spares keys without a TTL)",
            );
        }
        let told = self.0.contains_key("appendonly") && self.0.contains_key("appendfsync");
        if (stated && !told) || accepted == Loss::AtRestart {
            return Ok(());
        }
        if self.get("appendonly") != "yes" {
            return refused("appendonly", "appendonly yes and appendfsync always");
        }
        if accepted == Loss::OfASecond && self.get("appendfsync") == "everysec" {
            return Ok(());
        }
        if self.get("appendfsync") != "always" {
            return refused("appendfsync", "appendfsync always, or accept the loss by name (RedisOptions)");
        }
        if self.get("no-appendfsync-on-rewrite") == "yes" {
            return refused("no-appendfsync-on-rewrite", "no-appendfsync-on-rewrite no");
        }
        Ok(())
    }
}

/// Whether the server has CONFIG, and will not have it asked.
fn hidden(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::NoPerm) => true,
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            error.detail().is_some_and(|text| text.to_lowercase().contains("unknown command"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FenceErrorKind;

    fn settings(policy: &str, appendonly: &str, fsync: &str, on_rewrite: &str) -> Settings {
        let pairs = [
            ("maxmemory-policy", policy),
            ("appendonly", appendonly),
            ("appendfsync", fsync),
            ("no-appendfsync-on-rewrite", on_rewrite),
        ];
        Settings(pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[test]
    fn f011_t08_settings_that_lose_a_fence_are_refused_and_named() {
        use Loss::{AtRestart, Nothing, OfASecond};
        for (policy, appendonly, fsync, on_rewrite, accepted, refused) in [
            ("noeviction", "yes", "always", "no", Nothing, None),
            ("volatile-lru", "yes", "always", "no", Nothing, None),
            ("volatile-ttl", "yes", "always", "no", Nothing, None),
            ("allkeys-lru", "yes", "always", "no", Nothing, Some("maxmemory-policy")),
            ("allkeys-random", "yes", "always", "no", AtRestart, Some("maxmemory-policy")),
            ("noeviction", "no", "always", "no", Nothing, Some("appendonly")),
            ("noeviction", "no", "always", "no", OfASecond, Some("appendonly")),
            ("noeviction", "no", "everysec", "no", AtRestart, None),
            ("noeviction", "yes", "everysec", "no", Nothing, Some("appendfsync")),
            ("noeviction", "yes", "everysec", "yes", OfASecond, None),
            ("noeviction", "yes", "no", "no", OfASecond, Some("appendfsync")),
            ("noeviction", "yes", "always", "yes", Nothing, Some("no-appendfsync-on-rewrite")),
        ] {
            let answer = settings(policy, appendonly, fsync, on_rewrite).must_keep(accepted, false);
            match (answer, refused) {
                (Ok(()), None) => {}
                (Err(FenceError::NotDurable { setting, .. }), Some(name)) => {
                    assert!(setting.starts_with(name), "{setting}");
                }
                (answer, _) => panic!("{policy} {appendonly} {fsync} {on_rewrite} {accepted:?}: {answer:?}"),
            }
        }
        // What is stated stands in for what cannot be read, and not for what can.
        let hidden = |policy: &str| Settings(HashMap::from([("maxmemory-policy".into(), policy.into())]));
        assert!(hidden("noeviction").must_keep(Loss::Nothing, true).is_ok());
        assert!(hidden("noeviction").must_keep(Loss::Nothing, false).is_err());
        assert!(hidden("allkeys-lfu").must_keep(Loss::Nothing, true).is_err());
        assert!(settings("noeviction", "no", "no", "no").must_keep(Loss::Nothing, true).is_err());
    }

    #[test]
    fn a_server_that_cannot_hold_a_fence_is_refused() {
        let info = |version: &str, role: &str, id: &str| {
            Server::read(&format!(
                "# Server\r\nredis_version:{version}\r\n# Replication\r\nrole:{role}\r\nmaster_replid:{id}\r\ncluster_enabled:0\r\n"
            ))
        };
        assert!(info("7.0.15", "master", "ab12").must_be_able(true).is_ok());
        assert!(info("7.2.4", "master", "ab12").must_be_able(true).is_ok());
        for (server, detecting, word) in [
            (info("6.2.14", "master", "ab12"), true, "7.0"),
            (info("", "master", "ab12"), true, "7.0"),
            (info("x\u{1b}", "master", "ab12"), true, "7.0"),
            (info("7.0.15", "slave", "ab12"), true, "replica"),
            (info("7.0.15", "master", ""), true, "without_detecting_replacement"),
        ] {
            let error = server.must_be_able(detecting).unwrap_err();
            assert_eq!(error.kind(), FenceErrorKind::Unfit);
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(info("7.0.15", "master", "").must_be_able(false).is_ok());
    }
}
