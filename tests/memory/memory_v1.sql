-- A memory database of schema version 1, as that version wrote it: two facts in one episode, one of
-- them with a vector, KV of the episode behind a window, an anchor, and a key on the garbage list.
PRAGMA application_id=1230194253;
PRAGMA user_version=1;
CREATE TABLE episodes(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL, user TEXT NOT NULL, agent TEXT NOT NULL, run TEXT NOT NULL,
  facts INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE INDEX episodes_scope ON episodes(tenant, user, agent, run);

CREATE TABLE facts(
  row INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  tenant TEXT NOT NULL, user TEXT NOT NULL, agent TEXT NOT NULL, run TEXT NOT NULL,
  text TEXT NOT NULL, speaker TEXT NOT NULL, when_ms INTEGER, metadata TEXT NOT NULL,
  version INTEGER NOT NULL, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
  expires_ms INTEGER,
  episode INTEGER NOT NULL REFERENCES episodes(id),
  same BLOB NOT NULL, bytes INTEGER NOT NULL);
CREATE INDEX facts_user ON facts(tenant, user);
CREATE INDEX facts_episode ON facts(episode);
CREATE INDEX facts_same ON facts(same);
CREATE INDEX facts_expires ON facts(expires_ms) WHERE expires_ms IS NOT NULL;

CREATE TABLE vectors(
  fact INTEGER PRIMARY KEY REFERENCES facts(row) ON DELETE CASCADE,
  embedder BLOB NOT NULL, halves BLOB NOT NULL);

CREATE TABLE history(
  id INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL, fact TEXT NOT NULL, version INTEGER NOT NULL, event TEXT NOT NULL,
  old_text TEXT NOT NULL, new_text TEXT NOT NULL, at_ms INTEGER NOT NULL);
CREATE INDEX history_fact ON history(fact);

CREATE TABLE generations(owner BLOB PRIMARY KEY, generation INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE windows(id INTEGER PRIMARY KEY, content BLOB NOT NULL UNIQUE);
CREATE TABLE window_facts(
  window INTEGER NOT NULL REFERENCES windows(id) ON DELETE CASCADE,
  fact INTEGER NOT NULL, PRIMARY KEY(window, fact)) WITHOUT ROWID;
CREATE INDEX window_facts_fact ON window_facts(fact);

CREATE TABLE episode_kv(
  id INTEGER PRIMARY KEY,
  episode INTEGER NOT NULL REFERENCES episodes(id) ON DELETE CASCADE,
  fingerprint BLOB NOT NULL, kv_key BLOB NOT NULL, covered INTEGER NOT NULL,
  fact_tokens BLOB NOT NULL, encoding BLOB NOT NULL,
  window INTEGER NOT NULL REFERENCES windows(id),
  UNIQUE(episode, fingerprint));
CREATE INDEX episode_kv_key ON episode_kv(kv_key);
CREATE INDEX episode_kv_window ON episode_kv(window);

CREATE TABLE encode_failures(
  episode INTEGER NOT NULL REFERENCES episodes(id) ON DELETE CASCADE,
  fingerprint BLOB NOT NULL, failures INTEGER NOT NULL, retry_ms INTEGER NOT NULL,
  reason TEXT NOT NULL, PRIMARY KEY(episode, fingerprint)) WITHOUT ROWID;

CREATE TABLE kv_garbage(kv_key BLOB PRIMARY KEY) WITHOUT ROWID;

CREATE TABLE anchors(
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, user TEXT NOT NULL, facts_then INTEGER NOT NULL,
  UNIQUE(tenant, user));
CREATE TABLE anchor_facts(
  anchor INTEGER NOT NULL REFERENCES anchors(id) ON DELETE CASCADE,
  position INTEGER NOT NULL, fact INTEGER NOT NULL, PRIMARY KEY(anchor, position)) WITHOUT ROWID;
CREATE INDEX anchor_facts_fact ON anchor_facts(fact);

CREATE TRIGGER kv_gone AFTER DELETE ON episode_kv BEGIN
  INSERT OR IGNORE INTO kv_garbage SELECT old.kv_key
    WHERE NOT EXISTS (SELECT 1 FROM episode_kv WHERE kv_key = old.kv_key);
  DELETE FROM windows WHERE id = old.window
    AND NOT EXISTS (SELECT 1 FROM episode_kv WHERE window = old.window);
END;
CREATE TRIGGER kv_put AFTER INSERT ON episode_kv BEGIN
  DELETE FROM kv_garbage WHERE kv_key = new.kv_key;
END;

INSERT INTO episodes VALUES(1, 'default', 'ana', '', 'r1', 2, 14);
INSERT INTO episodes VALUES(2, 'default', 'ana', '', 'r1', 1, 6);
INSERT INTO facts VALUES(1, 'id-1', 'default', 'ana', '', 'r1', 'first', '', NULL, '{}', 1, 1000, 1000, NULL, 1, x'5a000000000000000100000000000000', 6);
INSERT INTO facts VALUES(2, 'id-2', 'default', 'ana', '', 'r1', 'second', '', NULL, '{}', 1, 1000, 1000, NULL, 1, x'5a000000000000000200000000000000', 7);
INSERT INTO facts VALUES(3, 'id-3', 'default', 'ana', '', 'r1', 'third', '', NULL, '{}', 1, 1000, 1000, NULL, 2, x'5a000000000000000300000000000000', 6);
INSERT INTO vectors VALUES(1, x'01000000000000000200000000000000', x'003c00b8');
INSERT INTO history VALUES(1, 'default', 'id-1', 1, 'ADD', '', 'first', 1000);
INSERT INTO history VALUES(2, 'default', 'id-2', 1, 'ADD', '', 'second', 1000);
INSERT INTO history VALUES(3, 'default', 'id-3', 1, 'ADD', '', 'third', 1000);
INSERT INTO windows VALUES(1, x'28000000000000000100000000000000');
INSERT INTO window_facts VALUES(1, 3);
INSERT INTO episode_kv VALUES(1, 1, x'05000000000000000600000000000000', x'00000000000000004d00000000000000', 2, x'0a0000000b000000', x'03000000000000000400000000000000', 1);
INSERT INTO kv_garbage VALUES(x'00000000000000004e00000000000000');
INSERT INTO anchors VALUES(1, 'default', 'ana', 3);
INSERT INTO anchor_facts VALUES(1, 0, 2);
