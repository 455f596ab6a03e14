-- What schema version 4 added to the database of memory_v3.sql.
PRAGMA user_version=4;
CREATE TABLE verdicts(
  id BLOB PRIMARY KEY, passed INTEGER NOT NULL, kl REAL, noise_kl REAL,
  agreement REAL NOT NULL, noise_agreement REAL NOT NULL, injected REAL NOT NULL,
  questions INTEGER NOT NULL, positions INTEGER NOT NULL, at_ms INTEGER NOT NULL) WITHOUT ROWID;
