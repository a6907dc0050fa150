//! Which worker should own what, and why: a pure function from a view of the keyspace to a plan.
