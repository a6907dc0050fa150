-- Effects that no fence can refuse, recorded beside the fence: what is to be done, what may have happened, what has.
--
-- Run it after 0001_ringfence.sql, again as often as you like. Workers need
--   GRANT USAGE ON SCHEMA ringfence TO worker;
--   GRANT SELECT, INSERT, UPDATE ON ringfence.effects TO worker;
-- docs/effects.md tells how to use it from any language. The state is a word, so that people can read it and put a row
-- right by hand. Times are for people only.

CREATE TABLE IF NOT EXISTS ringfence.effects (
    key      text PRIMARY KEY,
    kind     text NOT NULL,
    scope    text NOT NULL,
    state    text NOT NULL DEFAULT 'intended' CHECK (state IN ('intended', 'sending', 'done', 'refused', 'held')),
    attempts bigint NOT NULL DEFAULT 0,
    epoch    bigint,
    payload  text NOT NULL,
    outcome  text NOT NULL DEFAULT '',
    intended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX IF NOT EXISTS effects_open ON ringfence.effects (scope, kind, key COLLATE "C")
    WHERE state IN ('intended', 'sending', 'held');
