//! What is fuzzed: everything that reads what comes from outside.
//!
//! A target reads an input as the product does. It returns the product's own error, and panics when something does not
//! hold that must hold of whatever was read, above all that it is the same when it is written and read again.
//!
//! | module | what comes from where |
//! |---|---|
//! | `wire` | messages between clients and coordinators |
//! | `nodes` | messages between nodes |
//! | `state` | log entries and snapshots, and what applying them does to a state |
//! | `disk` | a node's files |
//! | `calls` | calls to a node that serves |
//! | `text` | what people and programs write: names, tokens, endpoints, settings, traces |

pub(super) mod calls;
pub(super) mod disk;
pub(super) mod nodes;
pub(super) mod state;
mod text;
pub(super) mod wire;

/// One reader.
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// How its inputs are changed.
    pub form: Form,
    /// Reads an input.
    pub read: fn(&[u8]) -> Result<(), String>,
    /// The bytes of memory that an empty input may take.
    pub base: usize,
    /// The bytes of memory that each byte of an input may take.
    pub per_byte: usize,
}

/// What an input looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A protobuf message.
    Message,
    /// A line with the name of a message, and the message.
    Named,
    /// Text.
    Text,
    /// Bytes of some other form.
    Bytes,
}

impl Target {
    /// The most bytes and allocations that an input of this length may take.
    pub fn allowance(&self, length: usize) -> (usize, usize) {
        let bytes = self.base + self.per_byte * length;
        // No allocation of those that count is smaller than a few bytes, so this is the looser of the two.
        (bytes, bytes / 8)
    }
}

/// All targets.
pub fn all() -> Vec<Target> {
    let target = |name, form, read| Target { name, form, read, base: 64 << 10, per_byte: 1 << 10 };
    vec![
        target("message", Form::Named, wire::message),
        target("failure", Form::Named, wire::failure),
        target("watch", Form::Message, wire::watch),
        target("attach", Form::Message, wire::attach),
        target("peer", Form::Named, nodes::message),
        target("snapshot-stream", Form::Message, nodes::snapshot_stream),
        target("entry", Form::Message, state::entry),
        target("snapshot", Form::Message, state::snapshot),
        // A keyspace of a thousand partitions is a message of a few bytes.
        Target { base: 16 << 20, ..target("apply", Form::Message, state::apply) },
        target("log", Form::Message, disk::log),
        target("snapshot-file", Form::Named, disk::snapshot_file),
        target("identity-file", Form::Text, disk::identity_file),
        // The store's cache and the pages of its file.
        Target { base: 64 << 20, ..target("data-dir", Form::Bytes, disk::data_dir) },
        target("settings-file", Form::Text, text::settings_file),
        target("founders", Form::Text, text::founders),
        // A node and its connections.
        Target { base: 32 << 20, ..target("calls", Form::Message, calls::calls) },
        target("trace", Form::Text, text::trace),
        target("token", Form::Text, text::token),
        target("name", Form::Text, text::name),
        target("endpoints", Form::Text, text::endpoints),
    ]
}
