//! Incidents, traps and rows of the founding articles, each as a test of its own name.
//!
//! | file | theme |
//! |---|---|
//! | `leases` | renewals, elections, silence: who believes what, and until when |
//! | `locks` | named locks: who holds one, who waits, and what the holder of before may still do |
//! | `loads` | what owners measure, and what moves because of it |
//! | `handoffs` | from one owner to the next, and what the one before may still do |
//! | `retries` | replies that are lost, requests that come late |
//! | `identity` | who may speak for a session, and who bears a name |
//! | `drills` | drills that are cut short |
//! | `clients` | what a coordinator says to those who ask the wrong node or ask nonsense |
//! | `splits` | partitions that are split while workers own them |
//! | `traffic` | many callers and many partitions, while owners and leaders change |

mod clients;
mod drills;
mod handoffs;
mod identity;
mod leases;
mod loads;
mod locks;
mod retries;
mod splits;
mod traffic;
