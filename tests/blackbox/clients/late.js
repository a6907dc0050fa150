// A coordinator and a clock that are made up: the time that passes while an answer is on its way, and while nothing runs but the caller.
const assert = require("node:assert");
const fs = require("node:fs");

let ahead = 0;
const { readFileSync } = fs;
fs.readFileSync = (path, as) => {
  if (path !== "/proc/uptime") return readFileSync(path, as);
  return `${Number(process.hrtime.bigint() / 1_000_000n) / 1000 + ahead} 0`;
};
const { Coordinator, Session } = require("ringfence");

let answering = "at once";
let answer; // to the renewal that waits for it
let revision = 0;
const told = (number) => ({ lock: "nightly", epoch: "7", mode: "LOCK_MODE_EXCLUSIVE", number });

globalThis.fetch = async (url) => {
  const method = url.split("/ringfence.v1.")[1];
  const answers = {
    "WorkerService/Join": { cluster: "prod", session: "1", ttlMs: "10000" },
    "LockService/Acquire": { granted: "7" },
  };
  const renewed = () => ({ assignment: { revision: `${++revision}`, locks: [told("1")] }, ttlMs: "10000" });
  const response = (body) => ({ ok: true, json: async () => body });
  if (method !== "WorkerService/Renew") return response(answers[method] ?? {});
  if (answering === "never") return new Promise((done) => (answer = () => done(response(renewed()))));
  if (answering === "late") {
    ahead += 5; // half of a lease
    answering = "never";
  }
  return response(renewed());
};

const until = async (reached) => {
  while (!reached()) await new Promise((done) => setTimeout(done, 5));
};

(async () => {
  const session = await Session.join(new Coordinator(["http://127.0.0.1:1"]), "w1", 10_000);
  const held = await session.acquire("nightly", 1_000);
  assert.strictEqual(held.token(), "prod/@locks/nightly@7");
  assert(!require("node:util").inspect(session, { depth: 9, showHidden: false }).includes("secret"));

  // The lease counts from before the renewal was sent, so half of it is over when the answer is there.
  answering = "late";
  await until(() => answer);
  held.token();
  ahead += 5;
  assert.throws(() => held.token(), /its lease ran out/);

  // A late answer brings nothing back.
  answer();
  await new Promise((done) => setImmediate(done));
  assert.throws(() => held.token(), /its lease ran out/);
  console.log("late");
  process.exit();
})();
