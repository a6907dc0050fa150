//! The placement of one keyspace, line by line, as it is for ever.
//!
//! Two leaders in a row, of two versions, must agree on where things belong. When this test fails, the change would
//! move partitions in every cluster on the day it is upgraded.

use super::world::World;
use crate::placement::{PartitionCount, PartitionKeys, Ring};
use std::fmt::Write;

const GOLDEN: &str = include_str!("../golden/assignment.tsv");

#[test]
fn f043_the_assignment_is_the_one_in_the_golden_file() {
    let mut world = World::vacant(&[1, 1, 2, 1, 3, 1], 64);
    let ring = Ring::new(&world.workers).unwrap();
    let keys = PartitionKeys::new(&world.keyspace, PartitionCount::new(64).unwrap());
    let home = |key: &u64| world.workers[ring.home(*key).unwrap().get()].worker.to_string();
    let homes: Vec<String> = keys.as_slice().iter().map(home).collect();

    let mut columns = vec![homes];
    let mut settle = |world: &mut World| {
        let plan = world.plan();
        world.carry_out(&plan.moves);
        columns.push(world.owners().iter().map(ToString::to_string).collect());
    };
    settle(&mut world);
    world.join("w006", 2);
    settle(&mut world);
    world.leave(2);
    settle(&mut world);

    let mut text = String::from(
        "# Keyspace orders, 64 partitions; workers w000 to w005 of weights 1, 1, 2, 1, 3, 1; then w006 of weight\n\
         # 2 joins; then w002 leaves. Columns: partition, home, first owner, owner after the join, after the leave.\n",
    );
    for partition in 0..64 {
        let owners: Vec<&str> = columns.iter().map(|column| column[partition].as_str()).collect();
        writeln!(text, "{partition}\t{}", owners.join("\t")).unwrap();
    }
    assert_eq!(text, GOLDEN, "the assignment would be:\n{text}");
}
