-- The database of memory_v4.sql, as schema version 5 made it of that, with a verdict.
PRAGMA application_id=1230194253;
PRAGMA user_version=5;
CREATE TABLE episodes(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL, user TEXT NOT NULL, agent TEXT NOT NULL, run TEXT NOT NULL,
  facts INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO episodes VALUES(1,'default','ana','','r1',2,14);
INSERT INTO episodes VALUES(2,'default','ana','','r1',1,6);
CREATE TABLE facts(
  row INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  tenant TEXT NOT NULL, user TEXT NOT NULL, agent TEXT NOT NULL, run TEXT NOT NULL,
  text TEXT NOT NULL, speaker TEXT NOT NULL, when_ms INTEGER, metadata TEXT NOT NULL,
  version INTEGER NOT NULL, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
  expires_ms INTEGER,
  episode INTEGER NOT NULL REFERENCES episodes(id),
  same BLOB NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO facts VALUES(1,'id-1','default','ana','','r1','first','',NULL,'{}',1,1000,1000,NULL,1,X'5a000000000000000100000000000000',6);
INSERT INTO facts VALUES(2,'id-2','default','ana','','r1','second','',NULL,'{}',1,1000,1000,NULL,1,X'5a000000000000000200000000000000',7);
INSERT INTO facts VALUES(3,'id-3','default','ana','','r1','third','',NULL,'{}',1,1000,1000,NULL,2,X'5a000000000000000300000000000000',6);
CREATE TABLE vectors(
  fact INTEGER PRIMARY KEY REFERENCES facts(row) ON DELETE CASCADE,
  embedder BLOB NOT NULL, halves BLOB NOT NULL);
INSERT INTO vectors VALUES(1,X'01000000000000000200000000000000',X'003c00b8');
INSERT INTO vectors VALUES(2,X'00000000000000000000000000000000',X'');
INSERT INTO vectors VALUES(3,X'00000000000000000000000000000000',X'');
CREATE TABLE history(
  id INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL, fact TEXT NOT NULL, version INTEGER NOT NULL, event TEXT NOT NULL,
  old_text TEXT NOT NULL, new_text TEXT NOT NULL, at_ms INTEGER NOT NULL);
INSERT INTO history VALUES(1,'default','id-1',1,'ADD','','first',1000);
INSERT INTO history VALUES(2,'default','id-2',1,'ADD','','second',1000);
INSERT INTO history VALUES(3,'default','id-3',1,'ADD','','third',1000);
CREATE TABLE generations(owner BLOB PRIMARY KEY, generation INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE windows(id INTEGER PRIMARY KEY, content BLOB NOT NULL UNIQUE);
INSERT INTO windows VALUES(1,X'28000000000000000100000000000000');
CREATE TABLE window_facts(
  window INTEGER NOT NULL REFERENCES windows(id) ON DELETE CASCADE,
  fact INTEGER NOT NULL, PRIMARY KEY(window, fact)) WITHOUT ROWID;
INSERT INTO window_facts VALUES(1,3);
CREATE TABLE encode_failures(
  episode INTEGER NOT NULL REFERENCES episodes(id) ON DELETE CASCADE,
  fingerprint BLOB NOT NULL, failures INTEGER NOT NULL, retry_ms INTEGER NOT NULL,
  reason TEXT NOT NULL, PRIMARY KEY(episode, fingerprint)) WITHOUT ROWID;
CREATE TABLE kv_garbage(kv_key BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE settings(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  fingerprint BLOB NOT NULL, encoding BLOB NOT NULL,
  label TEXT NOT NULL DEFAULT '', header_key BLOB, used_ms INTEGER NOT NULL DEFAULT 0,
  UNIQUE(fingerprint, encoding));
INSERT INTO settings VALUES(1,X'05000000000000000600000000000000',X'03000000000000000400000000000000','',NULL,0);
CREATE TABLE pending(
  setting INTEGER NOT NULL, episode INTEGER NOT NULL,
  PRIMARY KEY(setting, episode)) WITHOUT ROWID;
INSERT INTO pending VALUES(1,2);
CREATE TABLE episode_kv(
  id INTEGER PRIMARY KEY,
  episode INTEGER NOT NULL REFERENCES episodes(id) ON DELETE CASCADE,
  setting INTEGER NOT NULL REFERENCES settings(id) ON DELETE CASCADE,
  kv_key BLOB NOT NULL, covered INTEGER NOT NULL, fact_tokens BLOB NOT NULL,
  window INTEGER NOT NULL REFERENCES windows(id),
  UNIQUE(episode, setting));
INSERT INTO episode_kv VALUES(1,1,1,X'00000000000000004d00000000000000',2,X'0a0000000b000000',1);
CREATE TABLE anchors(
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, user TEXT NOT NULL, size INTEGER NOT NULL,
  facts_then INTEGER NOT NULL, UNIQUE(tenant, user, size));
CREATE TABLE anchor_facts(
  anchor INTEGER NOT NULL REFERENCES anchors(id) ON DELETE CASCADE,
  position INTEGER NOT NULL, fact INTEGER NOT NULL, PRIMARY KEY(anchor, position)) WITHOUT ROWID;
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('episodes',2);
INSERT INTO sqlite_sequence VALUES('facts',3);
INSERT INTO sqlite_sequence VALUES('settings',1);
CREATE INDEX episodes_scope ON episodes(tenant, user, agent, run);
CREATE INDEX facts_user ON facts(tenant, user);
CREATE INDEX facts_episode ON facts(episode);
CREATE INDEX facts_same ON facts(same);
CREATE INDEX facts_expires ON facts(expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX history_fact ON history(fact);
CREATE INDEX window_facts_fact ON window_facts(fact);
CREATE INDEX vectors_embedder ON vectors(embedder);
CREATE INDEX settings_header ON settings(header_key);
CREATE INDEX episode_kv_key ON episode_kv(kv_key);
CREATE INDEX episode_kv_window ON episode_kv(window);
CREATE INDEX anchor_facts_fact ON anchor_facts(fact);
INSERT INTO kv_garbage VALUES(X'00000000000000004e00000000000000');
CREATE TRIGGER kv_gone AFTER DELETE ON episode_kv BEGIN
  INSERT OR IGNORE INTO kv_garbage SELECT old.kv_key
    WHERE NOT EXISTS (SELECT 1 FROM episode_kv WHERE kv_key = old.kv_key);
  DELETE FROM windows WHERE id = old.window
    AND NOT EXISTS (SELECT 1 FROM episode_kv WHERE window = old.window);
  INSERT OR IGNORE INTO pending SELECT old.setting, old.episode
    WHERE EXISTS (SELECT 1 FROM settings WHERE id = old.setting)
    AND EXISTS (SELECT 1 FROM episodes WHERE id = old.episode);
END;
CREATE TRIGGER kv_put AFTER INSERT ON episode_kv BEGIN
  DELETE FROM kv_garbage WHERE kv_key = new.kv_key;
  DELETE FROM pending WHERE setting = new.setting AND episode = new.episode
    AND new.covered >= (SELECT facts FROM episodes WHERE id = new.episode);
END;
CREATE TRIGGER episode_made AFTER INSERT ON episodes BEGIN
  INSERT INTO pending SELECT id, new.id FROM settings;
END;
CREATE TRIGGER episode_resized AFTER UPDATE OF facts ON episodes WHEN new.facts <> old.facts BEGIN
  INSERT OR IGNORE INTO pending SELECT id, new.id FROM settings;
  DELETE FROM pending WHERE episode = new.id AND setting IN
    (SELECT setting FROM episode_kv WHERE episode = new.id AND covered >= new.facts);
END;
CREATE TRIGGER episode_gone AFTER DELETE ON episodes BEGIN
  DELETE FROM pending WHERE episode = old.id AND setting IN (SELECT id FROM settings);
END;
CREATE TRIGGER setting_made AFTER INSERT ON settings BEGIN
  INSERT INTO pending SELECT new.id, id FROM episodes;
END;
CREATE TRIGGER setting_header AFTER UPDATE OF header_key ON settings BEGIN
  DELETE FROM kv_garbage WHERE kv_key = new.header_key;
END;
CREATE TRIGGER setting_gone AFTER DELETE ON settings BEGIN
  DELETE FROM pending WHERE setting = old.id;
  INSERT OR IGNORE INTO kv_garbage SELECT old.header_key WHERE old.header_key IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM settings WHERE header_key = old.header_key);
END;
CREATE TABLE rank_counts(ranks INTEGER PRIMARY KEY);
INSERT INTO rank_counts VALUES(1);
CREATE TABLE verdicts(
  id BLOB PRIMARY KEY, passed INTEGER NOT NULL, kl REAL, noise_kl REAL,
  agreement REAL NOT NULL, noise_agreement REAL NOT NULL, injected REAL NOT NULL,
  questions INTEGER NOT NULL, positions INTEGER NOT NULL, at_ms INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO verdicts VALUES(X'00000000000000004d00000000000000',1,0.25,0.5,0.875,0.75,0.9,12,288,1700000000123);
CREATE TABLE quotas(
  tenant TEXT PRIMARY KEY, facts INTEGER NOT NULL, kv_bytes INTEGER NOT NULL,
  encode_tokens INTEGER NOT NULL) WITHOUT ROWID;
