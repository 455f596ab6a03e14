-- What schema version 3 added to the database of memory_v2.sql.
PRAGMA user_version=3;
CREATE TABLE rank_counts(ranks INTEGER PRIMARY KEY);
INSERT INTO rank_counts VALUES(1);
