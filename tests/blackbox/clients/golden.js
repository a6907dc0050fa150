const { readFileSync } = require("node:fs");
const { partitionOf } = require("ringfence");

let agree = 0;
for (const path of process.argv.slice(1)) {
  const lines = readFileSync(path, "utf8").split("\n");
  for (const line of lines.filter((line) => line !== "" && !line.startsWith("#"))) {
    const [key, ...numbers] = line.split("\t");
    const [before, now, partition] = (numbers.length === 3 ? numbers : [numbers[0], ...numbers]).map(Number);
    // 0 says that nothing is being split, and so does a number that has not changed.
    const answer = partitionOf(Buffer.from(key, "hex"), now, before === now ? 0 : before);
    if (answer !== partition) {
      console.log(`another partition: ${line} ${answer}`);
      process.exit();
    }
    agree += 1;
  }
}
console.log(`${agree} agree`);
