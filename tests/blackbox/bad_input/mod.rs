//! What is wrong is refused where it comes in, and what is damaged is never served.

mod disks;
mod settings;
