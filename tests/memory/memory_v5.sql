-- What schema version 5 added to the database of memory_v4.sql, and a verdict that was measured there.
PRAGMA user_version=5;
INSERT INTO verdicts VALUES(X'00000000000000004d00000000000000',1,0.25,0.5,0.875,0.75,0.9,12,288,1700000000123);
CREATE TABLE quotas(
  tenant TEXT PRIMARY KEY, facts INTEGER NOT NULL, kv_bytes INTEGER NOT NULL,
  encode_tokens INTEGER NOT NULL) WITHOUT ROWID;
