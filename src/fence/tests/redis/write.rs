//! The guarded write: what is found before it runs, what it answers, and what happens when it fails in the middle.

use crate::server::available;
use crate::subject::{Fenced, cluster, cluster_of_one, set, token};
use redis::{Pipeline, Value};
use ringfence_fence::redis::{CommandFailed, GuardedScript, MAX_ARGUMENTS, RULE_LUA, RedisFence};
use ringfence_fence::{FenceError, FenceErrorKind};
use std::slice::from_ref;

/// Commands in words that stand between spaces.
fn commands(lines: &[&str]) -> Pipeline {
    let mut write = redis::pipe();
    for line in lines {
        write.add_command(crate::server::command(line));
    }
    write
}

fn command_failed(error: &FenceError) -> CommandFailed {
    assert_eq!(error.kind(), FenceErrorKind::Store, "{error}");
    CommandFailed::of(error).unwrap().clone()
}

#[test]
fn the_replies_are_those_of_the_commands_in_their_order() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let owner = token("prod/orders/17@5");
    db.raise(&owner).unwrap();
    let write = commands(&[
        "SET a 1",
        "GET nothing",
        "INCR n",
        "HSET h x 1 y 2",
        "LRANGE nothing 0 -1",
        "GET a",
        "HGET h x",
    ]);
    let replies = db.write(from_ref(&owner), &write).unwrap();
    let text = |text: &str| Value::BulkString(text.into());
    assert_eq!(
        replies,
        [Value::Okay, Value::Nil, Value::Int(1), Value::Int(2), Value::Array(vec![]), text("1"), text("1")]
    );
    // Bytes go in and come out as they are, and a word is never taken apart.
    let odd = b"\r\n\x00\xff {}' OR 1".to_vec();
    let mut write = redis::pipe();
    write.cmd("SET").arg(&odd).arg(&odd).cmd("GET").arg(&odd);
    assert_eq!(db.write(from_ref(&owner), &write).unwrap()[1], Value::BulkString(odd));
}

#[test]
fn what_cannot_run_is_found_before_anything_is_written() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let owner = token("prod/orders/17@5");
    db.raise(&owner).unwrap();
    let fence = db.fence.key(owner.scope());
    let (expire, rename) = (format!("EXPIRE {fence} 1"), format!("RENAME k {fence}"));
    let sort = format!("SORT list STORE {fence}");
    let before = db.client.info("aof_current_size");
    for (second, why) in [
        ("NOSUCHCOMMAND k v", "does not know"),
        ("XGROUP NOSUCH k g", "does not know"),
        ("XGROUP", "second word"),
        ("XGROUP CREATE k", "number of arguments"),
        ("SET k", "number of arguments"),
        ("GET k v", "number of arguments"),
        ("EVAL return 0", "in no script"),
        ("MULTI", "in no script"),
        ("SUBSCRIBE c", "in no script"),
        ("FLUSHALL", "no place"),
        ("SELECT 1", "no place"),
        (&expire, "ringfence:"),
        (&rename, "ringfence:"),
        (&sort, "ringfence:"),
        ("DEL a b ringfence:store", "ringfence:"),
    ] {
        match db.write(from_ref(&owner), &commands(&["SET first written", second])) {
            Err(FenceError::Unfit { why: text }) => {
                assert!(text.contains(why) && text.contains("command 2"), "{second}: {text}");
            }
            other => panic!("{second}: {other:?}"),
        }
    }
    let mut long = redis::pipe();
    long.cmd("RPUSH").arg("list").arg(vec!["v"; MAX_ARGUMENTS - 1]);
    assert_eq!(db.write(from_ref(&owner), &long).unwrap_err().kind(), FenceErrorKind::Unfit);
    assert_eq!(db.client.info("aof_current_size"), before);

    let mut long = redis::pipe();
    long.cmd("RPUSH").arg("list").arg(vec!["v"; MAX_ARGUMENTS - 2]);
    assert_eq!(db.write(from_ref(&owner), &long).unwrap(), [Value::Int(6_998)]);
    db.write(from_ref(&owner), &commands(&["xgroup create s g $ mkstream", "set k v"])).unwrap();
}

#[test]
fn a_command_that_fails_in_the_middle_takes_nothing_back_and_says_so() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let owner = token("prod/orders/17@5");
    db.raise(&owner).unwrap();
    db.write(from_ref(&owner), &commands(&["LPUSH list x"])).unwrap();
    let error = db.write(from_ref(&owner), &commands(&["SET a 1", "HSET list x 1", "SET b 1"])).unwrap_err();
    let failed = command_failed(&error);
    assert_eq!(failed.took_effect(), Some(1));
    let text = failed.to_string();
    assert!(
        text.contains("command 2 of 3") && text.contains("WRONGTYPE") && text.contains("stays"),
        "{text}"
    );
    assert_eq!(
        db.client.ask::<(bool, bool)>("EVAL return{redis.call('EXISTS','a'),redis.call('EXISTS','b')} 0"),
        (true, false)
    );
}

#[test]
fn a_script_of_the_user_s_runs_in_one_step_with_the_check() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&new).unwrap();
    let script = GuardedScript::new(
        "local stock = tonumber(redis.call('GET', KEYS[1]) or ARGV[2])
         if stock < tonumber(ARGV[1]) then return {err = 'SHORT of stock'} end
         redis.call('SET', KEYS[1], stock - ARGV[1])
         return #KEYS .. ' ' .. #ARGV .. ' ' .. stock - ARGV[1] -- the end is not swallowed",
    );
    let mut run = |token, take: &str| {
        db.client
            .with(async |conn| db.fence.run(conn, from_ref(token), &script, &["stock"], &[take, "10"]).await)
    };
    assert_eq!(run(&new, "3").unwrap(), Value::BulkString(b"1 2 7".to_vec()));
    assert!(matches!(run(&old, "3"), Err(FenceError::Fenced(_))));
    let short = command_failed(&run(&new, "100").unwrap_err());
    assert_eq!((short.took_effect(), short.message()), (None, "SHORT of stock"));
    assert_eq!(run(&new, "1").unwrap(), Value::BulkString(b"1 2 6".to_vec()));

    let none: [&str; 0] = [];
    let mut run = |body: &str, args: &[String]| {
        let script = GuardedScript::new(body);
        db.client.with(async |conn| db.fence.run(conn, from_ref(&new), &script, &none, args).await)
    };
    assert_eq!(run("", &[]).unwrap(), Value::Nil);
    assert_eq!(run("return #ARGV", &vec!["x".to_string(); 20_000]).unwrap(), Value::Int(20_000));
    assert_eq!(run("this is no Lua", &[]).unwrap_err().kind(), FenceErrorKind::Unfit);
    let broke = command_failed(&run("redis.call('SET', 'half', 'way') error('broke')", &[]).unwrap_err());
    assert!(broke.message().contains("broke"), "{broke}");
    assert!(db.client.ask::<bool>("EXISTS half"));
    let script = GuardedScript::new("return 1");
    let fences = db.client.with(async |conn| {
        db.fence.run(conn, from_ref(&new), &script, &["ringfence:{orders/17}"], &none).await
    });
    assert_eq!(fences.unwrap_err().kind(), FenceErrorKind::Unfit);
}

#[test]
fn either_protocol_gives_the_same_answers() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    db.client = crate::server::Client::of_resp3(db.server.port());
    db.fence = db.client.with(async |conn| RedisFence::install(conn, &cluster("prod")).await).unwrap();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&new).unwrap();
    assert_eq!(db.highest(old.scope()).unwrap(), Some(new.epoch()));
    assert!(matches!(db.set(&old, "33"), Err(FenceError::Fenced(_))));
    let write = commands(&["SADD s a", "SMEMBERS s", "GET nothing", "HGETALL nothing"]);
    let replies = db.write(from_ref(&new), &write).unwrap();
    let one = Value::Array(vec![Value::BulkString(b"a".to_vec())]);
    assert_eq!(replies, [Value::Int(1), one, Value::Nil, Value::Array(vec![])]);
    let unknown = db.write(from_ref(&new), &commands(&["GET k v"])).unwrap_err();
    assert_eq!(unknown.kind(), FenceErrorKind::Unfit);
}

/// As a program in another language writes it.
#[test]
fn a22_the_rule_in_a_script_of_another_program_accepts_exactly_what_the_fence_accepts() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    db.raise(&token("prod/orders/17@34")).unwrap();
    let script = format!(
        "{RULE_LUA}
         local refused = ringfence.check()
         if refused then return refused[1] end
         redis.call('SET', KEYS[ringfence.keys], ARGV[ringfence.argv])
         return 'written'"
    );
    for (cluster, partition, epoch, expected) in [
        ("prod", 17, 33, "fenced"),
        ("prod", 17, 34, "written"),
        ("prod", 18, 34, "unraised"),
        ("test", 17, 34, "cluster"),
        ("prod", 17, 35 + (1_u64 << 48), "implausible"),
        ("prod", 17, 35, "written"),
        ("prod", 17, 34, "fenced"),
    ] {
        let mut eval = redis::cmd("EVAL");
        eval.arg(&script)
            .arg(3)
            .arg("ringfence:store")
            .arg(format!("ringfence:{{orders/{partition}}}"))
            .arg("k");
        eval.arg(1).arg(cluster).arg(1).arg(1).arg(format!("{epoch:016}")).arg("").arg("v");
        assert_eq!(db.client.try_ask::<String>(eval).unwrap(), expected, "{cluster} {partition} {epoch}");
        let token = token(&format!("{cluster}/orders/{partition}@{epoch}"));
        let checked = db.client.with(async |conn| db.fence.check(conn, from_ref(&token)).await);
        assert_eq!(checked.is_ok(), expected == "written", "{token}: {checked:?}");
    }
}

#[test]
fn t13_in_a_cluster_everything_of_a_write_is_in_one_slot_or_it_is_refused() {
    if !available() {
        return;
    }
    let server = cluster_of_one();
    let mut client = server.client();
    let fence = client.with(async |conn| RedisFence::install(conn, &cluster("prod")).await).unwrap();
    let (owner, other) = (token("prod/orders/17@5"), token("prod/orders/18@5"));
    client.with(async |conn| fence.raise(conn, &owner).await).unwrap();
    client.with(async |conn| fence.raise(conn, &other).await).unwrap();
    let slots = ["{orders/17}cart", &fence.key(owner.scope())]
        .map(|key| client.ask::<i64>(&format!("CLUSTER KEYSLOT {key}")));
    assert_eq!(slots[0], slots[1], "the server counts slots otherwise");

    let mut write = |tokens: &[_], lines: &[&str]| {
        client.with(async |conn| {
            let (fence, tokens, write) = (fence.clone(), tokens.to_vec(), commands(lines));
            fence.write(conn, &tokens, &write).await
        })
    };
    let mine = from_ref(&owner);
    write(mine, &["SET {orders/17}a 1", "ZADD {orders/17}z 1 x", "ZUNIONSTORE {orders/17}u 1 {orders/17}z"])
        .unwrap();
    write(mine, &["TIME"]).unwrap();
    for lines in [
        ["SET {orders/17}b 1", "SET b 1"],
        ["SET {orders/17}b 1", "MSET {orders/17}c 1 {orders/18}c 1"],
        ["SET {orders/17}b 1", "ZUNIONSTORE {orders/17}u 1 {orders/18}z"],
    ] {
        match write(mine, &lines) {
            Err(FenceError::Unfit { why }) => {
                assert!(why.contains("command 2") && why.contains("{orders/17}"), "{why}");
            }
            answer => panic!("{lines:?}: {answer:?}"),
        }
    }
    match write(&[owner.clone(), other.clone()], &["SET {orders/17}b 1"]) {
        Err(FenceError::Unfit { why }) => assert!(why.contains("together"), "{why}"),
        answer => panic!("{answer:?}"),
    }
    let both = client.with(async |conn| fence.raise_all(conn, &[owner.clone(), other]).await);
    assert_eq!(both.unwrap_err().kind(), FenceErrorKind::Unfit);
    let script = GuardedScript::new("return redis.call('SET', KEYS[1], '1')");
    let none: [&str; 0] = [];
    let elsewhere = client.with(async |conn| fence.run(conn, mine, &script, &["b"], &none).await);
    assert_eq!(elsewhere.unwrap_err().kind(), FenceErrorKind::Unfit);
    client.with(async |conn| fence.run(conn, mine, &script, &["{orders/17}d"], &none).await).unwrap();
    assert!(!client.ask::<bool>("EXISTS {orders/17}b"));
}

#[test]
fn t01_a_write_that_brings_a_higher_epoch_in_moves_the_fence_although_its_command_fails() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (owner, next) = (token("prod/orders/17@5"), token("prod/orders/17@6"));
    db.raise(&owner).unwrap();
    db.write(from_ref(&owner), &commands(&["LPUSH list x"])).unwrap();
    let error = db.write(from_ref(&next), &commands(&["SET list x", "INCR list"])).unwrap_err();
    assert_eq!(command_failed(&error).took_effect(), Some(1));
    assert_eq!(db.highest(owner.scope()).unwrap(), Some(next.epoch()));
    assert!(matches!(db.set(&owner, "5"), Err(FenceError::Fenced(_))));
}

#[test]
fn a_connection_that_breaks_during_a_write_leaves_it_unknown() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let owner = token("prod/orders/17@5");
    db.raise(&owner).unwrap();
    db.server.kill();
    let error = db.write(from_ref(&owner), &set("k", "v")).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (FenceErrorKind::Store, false), "{error}");
}

#[test]
fn a_time_limit_that_passes_during_a_write_leaves_it_unknown_and_it_may_take_effect() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let owner = token("prod/orders/17@5");
    db.raise(&owner).unwrap();
    // From here on the server knows the script.
    db.set(&owner, "before").unwrap();
    let mut impatient = db.server.client();
    impatient.conn.set_response_timeout(std::time::Duration::from_millis(50));
    // Everybody who writes waits, until somebody says otherwise.
    db.client.ask::<()>("CLIENT PAUSE 100000 WRITE");
    let error = impatient
        .with(async |conn| db.fence.write(conn, from_ref(&owner), &set("late", "v")).await)
        .unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (FenceErrorKind::Store, false), "{error}");
    db.client.ask::<()>("CLIENT UNPAUSE");
    let mut reader = db.server.client();
    reader.until_asked("EXISTS late", 1);
}
