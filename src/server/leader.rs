//! The leader's loop: makes the leadership of a term, and carries out what it decides.
