// Two things to do with the client: take a lock, and look up an owner.
//
//   tsc --strict --target es2020 --lib es2020,dom --module commonjs --outDir OUT examples/clients/typescript/*.ts
//   node OUT/example.js http://HOST:PORT[,...] lock NAME WORKER
//   node OUT/example.js http://HOST:PORT[,...] lookup KEYSPACE KEY
//
// `lock` says the token of the lock when it holds it, and gives it back when a line comes from standard input.

import { Coordinator, Session } from "./ringfence";

declare const process: {
  argv: string[];
  exitCode: number;
  stdin: { once(event: "data", then: () => void): void; unref(): void };
};

async function hold(session: Session, name: string): Promise<void> {
  const lock = await session.acquire(name, 60_000);
  if (!lock) return console.log("held by another");
  console.log(`holds ${lock.token()}`);
  await new Promise<void>((done) => process.stdin.once("data", done));
  console.log(`still ${lock.token()}`); // asked anew for each thing that is done under it, and sent with it
  await lock.release();
  console.log("released");
}

async function main(): Promise<void> {
  const [endpoints, verb, name, what] = process.argv.slice(2);
  const coordinator = new Coordinator(endpoints.split(","));
  if (verb === "lookup") return console.log(await coordinator.lookup(name, new TextEncoder().encode(what)));
  const session = await Session.join(coordinator, what, 3_000);
  try {
    await hold(session, name);
  } finally {
    await session.leave();
    process.stdin.unref();
  }
  console.log("left");
}

main().catch((error) => {
  console.error(`${error}`);
  process.exitCode = 1;
});
