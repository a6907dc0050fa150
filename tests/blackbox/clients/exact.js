// A coordinator that is made up: what it says lies where doubles lose digits, and what it is told has to be what it said.
const assert = require("node:assert");
const { Coordinator, Session } = require("ringfence");

const SESSION = "9007199254740993"; // 2^53 + 1: as a double it is 2^53
const EPOCH = "9007199254740991"; // the highest that there is
const told = [];
let revision = 18446744073709551614n; // as a double it is the next one as well
let lock = true;

globalThis.fetch = async (url, { body }) => {
  const method = url.split("/ringfence.v1.")[1];
  const request = JSON.parse(body);
  if (method !== "WorkerService/Join" && method !== "MapService/Lookup") assert.strictEqual(request.session, SESSION, method);
  told.push([method, request]);
  const locks = lock ? [{ lock: "nightly", epoch: EPOCH, mode: "LOCK_MODE_EXCLUSIVE", number: "1" }] : [];
  const entry = { partition: 3, epoch: EPOCH, ready: true, owner: { worker: "w1", address: "" } };
  const answers = {
    "WorkerService/Join": { cluster: "prod", session: SESSION, ttlMs: "1000" },
    "WorkerService/Renew": { assignment: { revision: `${revision}`, locks }, ttlMs: "1000" },
    "LockService/Acquire": { granted: EPOCH },
    "MapService/Lookup": { entry },
  };
  return { ok: true, json: async () => answers[method] ?? {} };
};

/** Waits until it has renewed twice more, so that one of the two was answered as things are now. */
const renewed = async () => {
  const count = () => told.filter(([method]) => method === "WorkerService/Renew").length;
  for (const enough = count() + 2; count() < enough; ) await new Promise((done) => setTimeout(done, 5));
};

(async () => {
  const coordinator = new Coordinator(["http://127.0.0.1:1"]);
  assert.strictEqual((await coordinator.lookup("orders", Buffer.from("a"))).epoch, BigInt(EPOCH));
  const session = await Session.join(coordinator, "w1", 1_000);
  const held = await session.acquire("nightly", 1_000);
  assert.strictEqual(held.epoch, 9007199254740991n);
  assert.strictEqual(held.token(), `prod/@locks/nightly@${EPOCH}`);
  revision += 1n;
  await renewed();
  // A picture that is older by one is not believed, though it has lost the lock.
  [revision, lock] = [revision - 1n, false];
  await renewed();
  held.token();
  // One that is as new is.
  revision += 1n;
  await renewed();
  assert.throws(() => held.token(), /the coordinator took it/);
  await held.release();
  assert.strictEqual(told.find(([method]) => method === "LockService/Release")[1].epoch, EPOCH);
  await session.leave();
  console.log("exact");
})();
