// A small client of ringfence in TypeScript, over HTTP with JSON (docs/http.md): who owns a key, and locks. For Node 18 and later.
//
// It is written to be read beside proto/ringfence/v1, and to be copied; it depends on nothing. Its sessions have no stream, so they hold
// locks and no partitions: a worker is run by `ringfence run`, or speaks gRPC.
//
// One rule carries the rest: whoever holds a lock asks for its token before each thing that it does, sends the token with it, and the
// storage's fence refuses a token that is too old. `Lock.token()` looks at the clock each time, and throws NotHeld when the time is over.
//
// 64-bit numbers are strings on the wire and BigInt here. A `number` is a double: above 2^53 two revisions look equal that are not.

declare const process: { hrtime: { bigint(): bigint } };
declare function require(module: "node:crypto"): {
  randomBytes(size: number): Uint8Array;
  createHash(by: "sha256"): { update(bytes: Uint8Array): { digest(): Uint8Array } };
};
declare function require(module: "node:fs"): { readFileSync(path: string, as: "latin1"): string };
const { randomBytes, createHash } = require("node:crypto");
const { readFileSync } = require("node:fs");

/** Of a span that the coordinator gave, what may be believed: clocks' rates differ by 1 % at the most, and a reading is 10 ms old. */
const RATE = 0.99;
const MARGIN_MS = 40;
/** How often a session looks at least while somebody waits for a lock. */
const LOOK_MS = 250;

/**
 * Milliseconds on a clock that nobody sets. `process.hrtime` does not count the time for which the machine sleeps, so a lease would
 * look good after it that ran out meanwhile. Linux says the same with that time in /proc/uptime; elsewhere, do not let the machine sleep.
 */
export const now: () => number = (() => {
  const uptime = () => Number(readFileSync("/proc/uptime", "latin1").split(" ")[0]) * 1000;
  try {
    if (uptime() > 0) return uptime;
  } catch {
    // Not Linux.
  }
  return () => Number(process.hrtime.bigint() / 1_000_000n);
})();

const sleep = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));
const base64 = (bytes: Uint8Array) => btoa(String.fromCharCode(...bytes));

/** SipHash-2-4 with a zero key: proto/PARTITIONS.md. */
export function sipHash(key: Uint8Array): bigint {
  const cut = (x: bigint) => BigInt.asUintN(64, x);
  const rotl = (x: bigint, by: bigint) => cut(x << by) | (x >> (64n - by));
  let [v0, v1, v2, v3] = [0x736f6d6570736575n, 0x646f72616e646f6dn, 0x6c7967656e657261n, 0x7465646279746573n];
  const rounds = (count: number) => {
    for (let i = 0; i < count; i++) {
      [v0, v2] = [cut(v0 + v1), cut(v2 + v3)];
      [v1, v3] = [rotl(v1, 13n) ^ v0, rotl(v3, 16n) ^ v2];
      [v0, v2] = [cut(rotl(v0, 32n) + v3), cut(v2 + v1)];
      [v1, v3] = [rotl(v1, 17n) ^ v2, rotl(v3, 21n) ^ v0];
      v2 = rotl(v2, 32n);
    }
  };
  // Words of 8 bytes; the last one ends in the length.
  const padded = new Uint8Array(Math.floor(key.length / 8) * 8 + 8);
  padded.set(key);
  padded[padded.length - 1] = key.length & 0xff;
  const words = new DataView(padded.buffer);
  for (let at = 0; at < padded.length; at += 8) {
    const word = words.getBigUint64(at, true);
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
  v2 ^= 0xffn;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

/** The partition of a key, in a keyspace with these `partitions` and `splitFrom` (0: none is being split). */
export function partitionOf(key: Uint8Array, partitions: number, splitFrom = 0): number {
  const hash = sipHash(key);
  if (splitFrom === 0) return Number(hash % BigInt(partitions));
  const number = Number(hash % BigInt(2 * splitFrom));
  return number < partitions ? number : number - splitFrom;
}

type ErrorDetail = { kind?: string; leader?: { address: string } | null };

/** A call that failed. `kind` is an ErrorKind, or "" when nothing answered that speaks for a coordinator. */
export class Failed extends Error {
  readonly kind: string;
  constructor(message: string, readonly detail: ErrorDetail) {
    super(message);
    this.kind = detail.kind ?? "";
  }
  /** Whether another node, or a later moment, may do. All calls of this client may be sent again: they carry a nonce or a number. */
  get again(): boolean {
    const kinds = ["NOT_LEADER", "NO_LEADER", "UNAVAILABLE", "UNKNOWN_OUTCOME"].map((kind) => `ERROR_KIND_${kind}`);
    return this.kind === "" || kinds.includes(this.kind);
  }
}

/** The lock is not held any more. Stop; send nothing under its token. */
export class NotHeld extends Error {}

export type Owner = { partition: number; epoch: bigint; ready: boolean; worker: string; address: string };

/** The nodes of a cluster, `http://HOST:PORT` each, of which one leads. */
export class Coordinator {
  private at: string;
  constructor(private readonly endpoints: string[]) {
    this.at = endpoints[0];
  }

  /** One call, tried at one node after the other for so long. `method` is SERVICE/METHOD. */
  async call<Answer>(method: string, request: object, patienceMs = 10_000): Promise<Answer> {
    const until = now() + patienceMs;
    for (let pause = 20; ; pause = Math.min(2 * pause, 500)) {
      const result = await this.attempt<Answer>(method, request, Math.min(2_000, patienceMs));
      if (!(result instanceof Failed)) return result;
      if (!result.again || now() >= until) throw result;
      const leader = result.detail.leader?.address;
      const next = this.endpoints[(this.endpoints.indexOf(this.at) + 1) % this.endpoints.length];
      this.at = leader ? `http://${leader}` : next;
      await sleep(pause * (0.5 + Math.random() / 2));
    }
  }

  private async attempt<Answer>(method: string, request: object, timeoutMs: number): Promise<Answer | Failed> {
    const aborter = new AbortController();
    const timer = setTimeout(() => aborter.abort(), timeoutMs);
    try {
      const options = { method: "POST", headers: { "Content-Type": "application/json" }, signal: aborter.signal };
      const response = await fetch(`${this.at}/ringfence.v1.${method}`, { ...options, body: JSON.stringify(request) });
      const body = await response.json();
      if (response.ok) return body;
      return new Failed(`${body.code}: ${body.message}`, body.details?.[0]?.debug ?? {});
    } catch (error) {
      return new Failed(`${this.at}: ${error}`, {});
    } finally {
      clearTimeout(timer);
    }
  }

  /** Who owns a key, by the leader's confirmed account; undefined while nobody does. */
  async lookup(keyspace: string, key: Uint8Array): Promise<Owner | undefined> {
    type Entry = { partition: number; epoch: string; ready: boolean; owner?: { worker: string; address: string } | null };
    const { entry } = await this.call<{ entry: Entry }>("MapService/Lookup", { keyspace, key: base64(key) });
    return entry.owner ? { ...entry, ...entry.owner, epoch: BigInt(entry.epoch) } : undefined;
  }
}

type Mode = "LOCK_MODE_EXCLUSIVE" | "LOCK_MODE_SHARED";
type HeldLock = { lock: string; epoch: string; mode: Mode; number: string };
type Renewed = { assignment: { revision: string; locks: HeldLock[] }; ttlMs: string };

/** A lock under one epoch. What is granted anew is a new object, so that no operation changes its epoch. */
export class Lock {
  /** Why it is not held any more. */
  lost = "";
  readonly epoch: bigint;
  constructor(private readonly session: Session, private readonly told: HeldLock) {
    this.epoch = BigInt(told.epoch);
  }

  get name(): string {
    return this.told.lock;
  }

  get number(): bigint {
    return BigInt(this.told.number);
  }

  /** CLUSTER/@locks/NAME@EPOCH, for an operation that begins now. It keeps it, also for its retries. Never kept for the next one. */
  token(): string {
    this.session.expire();
    const text = `${this.session.cluster}/@locks/${this.name}@${this.epoch}`;
    if (this.lost) throw new NotHeld(`${text}: ${this.lost}`);
    return text;
  }

  /** Gives it back, when nothing is under way any more. May be called after a loss, and again when it failed. */
  async release(): Promise<void> {
    // Not believed from before it is said.
    this.session.lose(this, "it was given back");
    const lock = this.name;
    if (this.told.mode === "LOCK_MODE_EXCLUSIVE") await this.session.say("LockService/Release", { lock, epoch: `${this.epoch}` });
    // Those who share a lock have one epoch, which names no grant.
    else await this.session.say("LockService/Abandon", { lock, number: this.told.number });
  }
}

/** One life of a worker that only takes locks: one lease for all of them. When it is over, it is over: open another. */
export class Session {
  /** Why it is over. */
  over = "";
  private lease?: number;
  private revision = -1n;
  private readonly held = new Map<string, Lock>();
  /** The highest number of an acquire that was believed of each lock. */
  private readonly marks = new Map<string, bigint>();
  /** Acquires that somebody waits for. */
  private readonly asked = new Set<bigint>();
  private number = 0n;
  private wake: () => void = () => {};
  /** Not `private`: what is, is printed with the object. */
  readonly #secret: string;

  private constructor(
    private readonly coordinator: Coordinator,
    readonly cluster: string,
    private readonly id: string,
    secret: string,
    private readonly ttlMs: number,
  ) {
    this.#secret = secret;
  }

  /** Opens one. The lease is not counted from here: no answer but that to a renewal extends it. */
  static async join(coordinator: Coordinator, worker: string, ttlMs: number): Promise<Session> {
    const secret = randomBytes(32);
    const secretSha256 = base64(createHash("sha256").update(secret).digest());
    const request = { protocol: 1, worker, nonce: base64(randomBytes(16)), secretSha256, ttlMs, replace: true };
    const joined = await coordinator.call<{ cluster: string; session: string; ttlMs: string }>("WorkerService/Join", request);
    const session = new Session(coordinator, joined.cluster, joined.session, base64(secret), Number(joined.ttlMs));
    void session.keep();
    return session;
  }

  /** A call under this session's secret. */
  say<Answer>(method: string, request: object, patienceMs?: number): Promise<Answer> {
    return this.coordinator.call<Answer>(method, { session: this.id, secret: this.#secret, ...request }, patienceMs);
  }

  /** Waits for a lock; undefined when it was not to be had. With 0 ms it does not queue. */
  async acquire(lock: string, waitMs: number, mode: Mode = "LOCK_MODE_EXCLUSIVE"): Promise<Lock | undefined> {
    if (this.held.has(lock)) throw new Error(`this session holds ${lock}`);
    const number = ++this.number;
    this.asked.add(number);
    const settledBelow = `${[...this.asked].reduce((least, other) => (other < least ? other : least))}`;
    const found = () => (this.held.get(lock)?.number === number ? this.held.get(lock) : undefined);
    try {
      const wish = { mode, takeover: "TAKEOVER_LEASE" };
      const request = { lock, number: `${number}`, settledBelow, wish, wait: waitMs > 0 };
      const answer = await this.say<{ granted?: string; queued?: number }>("LockService/Acquire", request);
      // "Granted" says nothing of now. What a renewal tells is held, and is renewed.
      const patience = answer.granted !== undefined ? this.ttlMs : answer.queued !== undefined ? waitMs : 0;
      for (const until = now() + patience; !found() && !this.over && now() < until; await sleep(10)) this.wake();
      if (this.over) throw new NotHeld(this.over);
      return found();
    } finally {
      this.asked.delete(number);
      if (!found()) this.abandon(lock, `${number}`);
    }
  }

  /** Ends the session. Give back what you hold before: the next one would else wait for the lease. */
  async leave(): Promise<void> {
    this.end("it left");
    await this.say("WorkerService/Leave", {});
  }

  /** Told until the coordinator knows, or the session is over. */
  private abandon(lock: string, number: string): void {
    const again = (failed: unknown) => {
      if (!this.over && failed instanceof Failed && failed.again) this.abandon(lock, number);
    };
    if (!this.over) this.say("LockService/Abandon", { lock, number }).catch(again);
  }

  /**
   * Looks at the clock, on the caller's path: a flag that a timer sets would be stale after a pause. An expired lease does not come
   * back with a late answer, for somebody may have seen that it was over.
   */
  expire(): void {
    if (this.lease !== undefined && now() >= this.lease) this.end("its lease ran out");
  }

  private end(why: string): void {
    this.over ||= why;
    for (const lock of this.held.values()) this.lose(lock, this.over);
  }

  lose(lock: Lock, why: string): void {
    lock.lost ||= why;
    if (this.held.get(lock.name) === lock) this.held.delete(lock.name);
  }

  /** Renews, one after the other, every sixth of the TTL. */
  private async keep(): Promise<void> {
    const every = this.ttlMs / 6;
    for (let next = 0; !this.over; ) {
      const sent = now(); // before it is sent: the coordinator begins to count later than this
      try {
        this.renewed(sent, await this.say<Renewed>("WorkerService/Renew", {}, this.ttlMs / 3));
        next = sent + every * (7 / 8 + Math.random() / 8);
      } catch (failed) {
        const final = ["ERROR_KIND_SESSION_ENDED", "ERROR_KIND_WRONG_SECRET"];
        if (failed instanceof Failed && final.includes(failed.kind)) this.end(failed.message);
        next = now() + every / 4;
      }
      this.expire();
      this.wake = () => (next = Math.min(next, sent + LOOK_MS));
      while (!this.over && now() < next) await sleep(Math.min(10, this.ttlMs / 100));
    }
  }

  private renewed(sent: number, { assignment }: Renewed): void {
    this.expire();
    const revision = BigInt(assignment.revision);
    if (this.over || revision < this.revision) return; // of an older leader
    this.revision = revision;
    this.lease = Math.max(this.lease ?? 0, sent + this.ttlMs * RATE - MARGIN_MS);
    // It is the whole picture: what is not named is gone.
    const named = new Map(assignment.locks.map((told) => [told.lock, BigInt(told.number)]));
    for (const lock of this.held.values()) {
      if (named.get(lock.name) !== lock.number) this.lose(lock, "the coordinator took it");
    }
    for (const told of assignment.locks) {
      const number = BigInt(told.number);
      // Known, or given back, and this is its late word.
      if (number <= (this.marks.get(told.lock) ?? 0n)) continue;
      this.marks.set(told.lock, number);
      if (this.asked.has(number)) this.held.set(told.lock, new Lock(this, told));
      else this.abandon(told.lock, told.number); // nobody waits for it any more
    }
    this.expire();
  }
}
