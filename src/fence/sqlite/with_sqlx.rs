//! The fence for sqlx.

use super::decide::decide;
use super::failure::{
    Ended, failed_in_sqlx, found_a_transaction, has_ended, journal_is_not_durable, refused_off,
    within_another,
};
use super::sql::{BIND, EXTRA, FORMAT, LOCK, OFF, RAISE, READ, REMEMBER, TABLES};
use super::value::{Read, Value, epoch_column, probe, session_column};
use crate::token::in_lock_order;
use crate::{Enforces, Fence, FenceError, FenceFuture, FencingToken, HighWater};
use futures_util::TryStreamExt as _;
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use sqlx::sqlite::SqliteRow;
use sqlx::{
    AssertSqlSafe, Connection as _, Row as _, Sqlite, SqliteConnection, SqlitePool, Transaction,
    TypeInfo as _, ValueRef as _,
};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::slice::from_ref;
use std::sync::LazyLock;

/// The fence of one SQLite database, for sqlx. It holds no connection: every call says which.
///
/// ```
/// # use ringfence_core::ids::ClusterId;
/// # use ringfence_fence::{FenceError, FencingToken, sqlite::SqlxFence};
/// # use sqlx::Connection as _;
/// # async fn story() -> Result<(), Box<dyn std::error::Error>> {
/// let mut conn = sqlx::SqliteConnection::connect("sqlite::memory:").await?;
/// sqlx::raw_sql("CREATE TABLE files (id INTEGER PRIMARY KEY, value TEXT)").execute(&mut conn).await?;
/// let fence = SqlxFence::install(&mut conn, &ClusterId::new("prod")?).await?;
///
/// let old: FencingToken = "prod/files/17@33".parse()?;
/// let new: FencingToken = "prod/files/17@34".parse()?;
/// fence.raise(&mut conn, &new).await?; // before the owner reads
///
/// let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
/// fence.check(&mut tx, &new).await?;
/// sqlx::query("INSERT INTO files VALUES (1, 'by 34')").execute(&mut *tx).await?;
/// tx.commit().await?;
///
/// let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
/// assert!(matches!(fence.check(&mut tx, &old).await, Err(FenceError::Fenced(_)))); // roll back
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(story()).unwrap();
/// ```
///
/// A call whose future is dropped may still take effect, which is harmless: a raise is of an epoch that the caller was
/// granted, and a check dies with its transaction. A raise that is dropped may leave its connection at
/// `synchronous = EXTRA`: slower, and as safe.
#[derive(Clone, Debug)]
pub struct SqlxFence {
    cluster: ClusterId,
}

impl SqlxFence {
    /// Makes the fence's tables where they are missing, and binds the database to the cluster at first use.
    ///
    /// Installing again changes nothing, so a program does it at every start. It opens a transaction of its own.
    ///
    /// # Errors
    /// [`FenceError::WrongCluster`] when the database is bound to another cluster; [`FenceError::NotDurable`] as for
    /// [`SqlxFence::raise`]; [`FenceError::Corrupt`] when the tables are of another format; [`FenceError::Unfit`] in a
    /// transaction; [`FenceError::Busy`] and [`FenceError::Store`].
    pub async fn install(conn: &mut SqliteConnection, cluster: &ClusterId) -> Result<SqlxFence, FenceError> {
        let doing = "installing the fence";
        durably(conn, doing, async |tx| {
            sqlx::raw_sql(TABLES).execute(&mut **tx).await.map_err(failed_in_sqlx(doing))?;
            let bind = sqlx::query(BIND).bind(FORMAT).bind(cluster.to_string());
            bind.execute(&mut **tx).await.map_err(failed_in_sqlx(doing))?;
            // Reads through the statement of every check, so a table of the right name and the wrong shape is found now.
            read(tx, &probe()?).await?.must_be_bound_to(cluster)
        })
        .await?;
        Ok(SqlxFence { cluster: cluster.clone() })
    }

    /// The cluster it was installed for.
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// Raises the fence of the token's scope, in a transaction of its own, durably.
    ///
    /// # Errors
    /// As [`HighWater::raise`]; [`FenceError::WrongCluster`]; [`FenceError::NotDurable`] when `synchronous` is `OFF` or the
    /// journal is not on disk; [`FenceError::NotInstalled`]; [`FenceError::Corrupt`]; [`FenceError::Unfit`] in a transaction;
    /// [`FenceError::Busy`], when another writer held the lock for longer than the connection's busy timeout;
    /// [`FenceError::Store`], after which it may have been raised or not, and raising again is safe.
    pub async fn raise(&self, conn: &mut SqliteConnection, token: &FencingToken) -> Result<(), FenceError> {
        self.raise_all(conn, from_ref(token)).await
    }

    /// Raises several scopes in one transaction, which costs one `fsync` instead of many: all or none.
    ///
    /// # Errors
    /// As [`SqlxFence::raise`]; no scope is raised then.
    pub async fn raise_all(
        &self,
        conn: &mut SqliteConnection,
        tokens: &[FencingToken],
    ) -> Result<(), FenceError> {
        raise_by(conn, tokens, HighWater::raise).await
    }

    /// Raises past the bound on a jump ([`MAX_JUMP`](crate::MAX_JUMP)), for an operator who knows why. It does not move a
    /// fence back either.
    ///
    /// # Errors
    /// As [`SqlxFence::raise`], without [`FenceError::Implausible`].
    pub async fn force_raise(
        &self,
        conn: &mut SqliteConnection,
        token: &FencingToken,
    ) -> Result<(), FenceError> {
        raise_by(conn, from_ref(token), HighWater::force_raise).await
    }

    /// Checks a token in the user's transaction, and holds the write lock from here to its end.
    ///
    /// Begin the transaction with `BEGIN IMMEDIATE` (`Connection::begin_with`). A deferred one, which is what `begin` begins, is
    /// safe too, but when somebody wrote since it first read, the check answers [`FenceError::Busy`] and the whole
    /// transaction has to run again.
    ///
    /// After an error the transaction must be dropped or rolled back, also after an error of a statement of your own:
    /// `INSERT OR ROLLBACK` and a full disk end the transaction, and what runs after that is on its own.
    /// [`SqlxFence::write`] sees to that where the write passes the error on, and says so where it does not. Check outside
    /// of savepoints, or what a check has remembered goes with one that is rolled back.
    ///
    /// # Errors
    /// As [`HighWater::check`]; [`FenceError::Unfit`] when the transaction has ended; [`FenceError::WrongCluster`],
    /// [`FenceError::NotInstalled`], [`FenceError::Corrupt`], [`FenceError::NotDurable`] as for a raise,
    /// [`FenceError::Busy`] and [`FenceError::Store`].
    pub async fn check(
        &self,
        tx: &mut Transaction<'_, Sqlite>,
        token: &FencingToken,
    ) -> Result<(), FenceError> {
        self.check_all(tx, from_ref(token)).await
    }

    /// Checks the tokens of all scopes that the transaction touches. All are accepted, or none is remembered.
    ///
    /// # Errors
    /// As [`SqlxFence::check`], and [`FenceError::Unstamped`] without any token.
    pub async fn check_all(
        &self,
        tx: &mut Transaction<'_, Sqlite>,
        tokens: &[FencingToken],
    ) -> Result<(), FenceError> {
        let tokens = in_lock_order(tokens).ok_or(FenceError::Unstamped)?;
        let first = tokens[0].scope();
        let mut found = BTreeMap::from([(first, lock_and_read(tx, first).await?)]);
        for token in &tokens {
            if let Entry::Vacant(place) = found.entry(token.scope()) {
                place.insert(read(tx, token.scope()).await?);
            }
        }
        for (scope, row) in decide(&tokens, &found)? {
            put(tx, REMEMBER, "remembering the epoch", &scope, row).await?;
        }
        Ok(())
    }

    /// Checks the tokens and runs the write in one immediate transaction; commits when it answers `Ok`, rolls back when
    /// it does not.
    ///
    /// # Errors
    /// As [`SqlxFence::check_all`], and whatever the write answers. [`FenceError::Busy`] may be the commit's own answer,
    /// after the write has run: nothing of it is in the database then, and what it did elsewhere has happened. A commit that
    /// failed with [`FenceError::Store`] is unknown; so is a write whose transaction had ended before. Close the connection
    /// after a commit that failed so: sqlx may take it for one in a transaction from then on.
    pub async fn write<T, E: From<FenceError>>(
        &self,
        conn: &mut SqliteConnection,
        tokens: &[FencingToken],
        work: impl AsyncFnOnce(&mut Transaction<'_, Sqlite>) -> Result<T, E>,
    ) -> Result<T, E> {
        let begun = conn.begin_with(IMMEDIATE).await;
        let mut tx = begun.map_err(failed_in_sqlx("beginning the write"))?;
        let done = match self.check_all(&mut tx, tokens).await {
            Ok(()) => work(&mut tx).await,
            Err(refused) => Err(refused.into()),
        };
        match done {
            Ok(answer) => {
                let doing = "committing the write";
                if had_ended(&mut tx).await {
                    let _ = tx.rollback().await;
                    return Err(FenceError::store(doing, Ended).into());
                }
                tx.commit().await.map_err(failed_in_sqlx(doing))?;
                Ok(answer)
            }
            Err(error) => {
                roll_back(tx).await;
                Err(error)
            }
        }
    }

    /// The highest epoch seen of a scope; `None` when it was never raised.
    ///
    /// # Errors
    /// [`FenceError::NotInstalled`], [`FenceError::Corrupt`], [`FenceError::Busy`] and [`FenceError::Store`].
    pub async fn highest(
        &self,
        conn: &mut SqliteConnection,
        scope: &Scope,
    ) -> Result<Option<Epoch>, FenceError> {
        Ok(read(conn, scope).await?.row.map(HighWater::epoch))
    }

    /// A fence for an owner to declare, which takes a connection of the pool for each call.
    pub fn raiser(&self, pool: SqlitePool) -> SqlxRaiser {
        SqlxRaiser { fence: self.clone(), pool }
    }
}

const IMMEDIATE: &str = "BEGIN IMMEDIATE";

async fn raise_by(
    conn: &mut SqliteConnection,
    tokens: &[FencingToken],
    decide: fn(Option<HighWater>, &FencingToken) -> Result<HighWater, FenceError>,
) -> Result<(), FenceError> {
    let doing = "raising the fence";
    durably(conn, doing, async |tx| {
        for token in tokens {
            let found = read(tx, token.scope()).await?;
            found.must_be_bound_to(token.cluster())?;
            put(tx, RAISE, doing, token.scope(), decide(found.row, token)?).await?;
        }
        Ok(())
    })
    .await
}

/// Runs `work` in an immediate transaction of its own and commits it durably.
async fn durably(
    conn: &mut SqliteConnection,
    doing: &'static str,
    work: impl AsyncFnOnce(&mut Transaction<'_, Sqlite>) -> Result<(), FenceError>,
) -> Result<(), FenceError> {
    if conn.is_in_transaction() {
        // One that was dropped may still be on its way to its rollback.
        conn.ping().await.map_err(failed_in_sqlx(doing))?;
    }
    if conn.is_in_transaction() {
        return Err(within_another());
    }
    let before = lift(conn).await?;
    let answer = committed(conn, doing, work).await;
    if let Some(before) = before {
        // Should it fail, the connection stays at the stricter setting: slower, and as safe.
        let back = format!("PRAGMA main.synchronous = {before}");
        let _ = sqlx::raw_sql(AssertSqlSafe(back)).execute(conn).await;
    }
    answer
}

async fn committed(
    conn: &mut SqliteConnection,
    doing: &'static str,
    work: impl AsyncFnOnce(&mut Transaction<'_, Sqlite>) -> Result<(), FenceError>,
) -> Result<(), FenceError> {
    let mut tx = conn.begin_with(IMMEDIATE).await.map_err(failed_in_sqlx(doing))?;
    match work(&mut tx).await {
        Ok(()) => tx.commit().await.map_err(failed_in_sqlx(doing)),
        Err(error) => {
            roll_back(tx).await;
            Err(error)
        }
    }
}

/// Whether the transaction is none any more, because a statement in it has ended it. sqlx cannot be asked: for it, it goes on.
///
/// A transaction within one is refused by SQLite, and changes nothing. Where one begins, sqlx has something to roll back; without
/// that, its rollback would fail, and it would begin no other transaction on this connection.
async fn had_ended(tx: &mut Transaction<'_, Sqlite>) -> bool {
    sqlx::raw_sql("BEGIN").execute(&mut **tx).await.is_ok()
}

/// Now rather than with the next call on the connection: until then it holds the lock.
async fn roll_back(mut tx: Transaction<'_, Sqlite>) {
    let _ = had_ended(&mut tx).await;
    let _ = tx.rollback().await;
}

/// Puts the connection at `synchronous = EXTRA`; answers what it was, when that has to come back.
async fn lift(conn: &mut SqliteConnection) -> Result<Option<i64>, FenceError> {
    let before: i64 = setting(conn, "PRAGMA main.synchronous").await?;
    if is_in_memory(conn).await? {
        return Ok(None);
    }
    if before == OFF {
        return Err(refused_off());
    }
    let journal: String = setting(conn, "PRAGMA main.journal_mode").await?;
    if let Some(error) = journal_is_not_durable(&journal) {
        return Err(error);
    }
    if before >= EXTRA {
        return Ok(None);
    }
    let extra = sqlx::raw_sql("PRAGMA main.synchronous = EXTRA").execute(conn).await;
    extra.map_err(failed_in_sqlx("making the raise durable"))?;
    Ok(Some(before))
}

async fn setting<T>(conn: &mut SqliteConnection, pragma: &'static str) -> Result<T, FenceError>
where
    T: for<'r> sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite> + Send + Unpin,
{
    let ask = sqlx::query_scalar::<Sqlite, T>(pragma);
    ask.fetch_one(conn).await.map_err(failed_in_sqlx("reading the durability of the database"))
}

async fn is_in_memory(conn: &mut SqliteConnection) -> Result<bool, FenceError> {
    let file = "SELECT COALESCE(file, '') FROM pragma_database_list WHERE name = 'main'";
    Ok(setting::<String>(conn, file).await?.is_empty())
}

static LOCK_AND_READ: LazyLock<String> =
    LazyLock::new(|| format!("{LOCK}; PRAGMA main.synchronous; PRAGMA main.journal_mode; {READ}; BEGIN"));

/// Takes the write lock, and reads the settings of durability and the scope's row: what nearly every check asks, in one go,
/// because each statement of sqlx is a way to another thread and back.
///
/// The last statement tells whether there is still a transaction, as [`had_ended`] does.
async fn lock_and_read(tx: &mut Transaction<'_, Sqlite>, scope: &Scope) -> Result<Read, FenceError> {
    let doing = "locking the fence";
    let all = sqlx::query(AssertSqlSafe(LOCK_AND_READ.as_str())).bind(scope.to_string());
    let (mut rows, mut stream) = (Vec::with_capacity(3), all.fetch(&mut **tx));
    loop {
        match stream.try_next().await {
            Ok(Some(row)) => rows.push(row),
            Ok(None) => return Err(has_ended()),
            Err(error) if found_a_transaction(&error) => break,
            Err(error) => return Err(failed_in_sqlx(doing)(error)),
        }
    }
    drop(stream);
    let synchronous: i64 = match rows.first() {
        Some(row) => row.try_get(0).map_err(failed_in_sqlx(doing))?,
        None => OFF,
    };
    let journal: String = match rows.get(1) {
        Some(row) => row.try_get(0).map_err(failed_in_sqlx(doing))?,
        None => "off".into(),
    };
    let refused = if synchronous == OFF { Some(refused_off()) } else { journal_is_not_durable(&journal) };
    if let Some(error) = refused
        && !is_in_memory(tx).await?
    {
        return Err(error);
    }
    rows.get(2).map_or_else(|| Err(Read::nothing()), |row| decode(scope, row))
}

/// Reads the binding and a scope's row in one statement.
async fn read(conn: &mut SqliteConnection, scope: &Scope) -> Result<Read, FenceError> {
    let row = sqlx::query(READ).bind(scope.to_string()).fetch_optional(conn).await;
    let row = row.map_err(failed_in_sqlx("reading the fence"))?;
    row.map_or_else(|| Err(Read::nothing()), |row| decode(scope, &row))
}

fn decode(scope: &Scope, row: &SqliteRow) -> Result<Read, FenceError> {
    let mut values = [Value::Null; 5];
    for (index, value) in values.iter_mut().enumerate() {
        *value = column(row, index).map_err(failed_in_sqlx("reading the fence"))?;
    }
    Read::decode(scope, values)
}

/// By what the value is, and not by what the column was declared as.
fn column(row: &SqliteRow, index: usize) -> Result<Value<'_>, sqlx::Error> {
    let raw = row.try_get_raw(index)?;
    if raw.is_null() {
        return Ok(Value::Null);
    }
    match raw.type_info().name() {
        "INTEGER" | "BOOLEAN" => row.try_get_unchecked(index).map(Value::Integer),
        "REAL" => row.try_get_unchecked(index).map(Value::Real),
        "TEXT" => row.try_get_unchecked(index).map(Value::Text),
        _ => row.try_get_unchecked(index).map(Value::Blob),
    }
}

async fn put(
    tx: &mut Transaction<'_, Sqlite>,
    statement: &'static str,
    doing: &'static str,
    scope: &Scope,
    row: HighWater,
) -> Result<(), FenceError> {
    let query =
        sqlx::query(statement).bind(scope.to_string()).bind(epoch_column(row)).bind(session_column(row));
    query.execute(&mut **tx).await.map(|_| ()).map_err(failed_in_sqlx(doing))
}

/// A [`SqlxFence`] that raises on connections of a pool. Made by [`SqlxFence::raiser`].
#[derive(Clone)]
pub struct SqlxRaiser {
    fence: SqlxFence,
    pool: SqlitePool,
}

impl SqlxRaiser {
    async fn connection(&self) -> Result<sqlx::pool::PoolConnection<Sqlite>, FenceError> {
        // Nothing was sent yet, so nothing is unknown.
        self.pool.acquire().await.map_err(|error| FenceError::busy("taking a connection of the pool", error))
    }
}

impl Fence for SqlxRaiser {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        Box::pin(async move {
            let mut conn = self.connection().await?;
            let answer = self.fence.raise(&mut conn, token).await;
            if answer.is_err() && conn.is_in_transaction() {
                // A commit that failed has left it so for sqlx, and no raise would come through on it any more.
                conn.close_on_drop();
            }
            answer
        })
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        Box::pin(async move { self.fence.highest(&mut *self.connection().await?, scope).await })
    }
}

impl Enforces for SqlxRaiser {}

impl fmt::Debug for SqlxRaiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqlxRaiser of {}", self.fence.cluster())
    }
}
