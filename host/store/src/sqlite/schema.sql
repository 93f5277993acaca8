-- Version 1 of what a server keeps. Times are milliseconds since 1970.

CREATE TABLE logs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    length INTEGER NOT NULL
) STRICT;

CREATE TABLE lines (
    log INTEGER NOT NULL,
    position INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (log, position)
) STRICT, WITHOUT ROWID;

-- Logs that were removed, and whose lines are still to be deleted.
CREATE TABLE removed (log INTEGER PRIMARY KEY) STRICT;

CREATE TABLE entries (
    bucket TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (bucket, key)
) STRICT, WITHOUT ROWID;

-- The greatest version of a deleted value of each bucket: a value that is put anew has a greater one.
CREATE TABLE used_versions (bucket TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (digest TEXT NOT NULL UNIQUE, bytes BLOB NOT NULL) STRICT;

CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The greatest epoch of a lease that was released.
CREATE TABLE used_epochs (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL) STRICT;

CREATE TABLE timers (name TEXT PRIMARY KEY, due INTEGER NOT NULL, payload BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX timers_by_due ON timers (due, name);

-- What is written to learn whether the store can be written.
CREATE TABLE probe (id INTEGER PRIMARY KEY CHECK (id = 1), bytes BLOB NOT NULL) STRICT;
